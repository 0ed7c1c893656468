"""From words and files to one frozen `Cluster`, its tasks and their ports."""
