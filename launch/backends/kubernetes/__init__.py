"""Jobs of Kubernetes: settings, manifests, kubectl, and what follows a job to its end."""
