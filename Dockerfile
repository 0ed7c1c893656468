# docker build -t cifar10 .
# docker run --rm -v records:/data/data -v results:/data/output cifar10 \
#     /data/cifar10_main.py --train-batch-size=16
# With NVIDIA GPUs: build with --build-arg REQUIREMENTS=requirements-gpu.lock, run with --gpus all.
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE} AS base

LABEL org.opencontainers.image.title="cifar10-estimator-pipeline" \
      org.opencontainers.image.description="Distributed CIFAR-10 training with tf.estimator" \
      org.opencontainers.image.licenses="Apache-2.0"

# HOME is writable for any --user; without the last two, no GPU shows inside.
ENV PYTHONUNBUFFERED=1 \
    PYTHONPATH=/data \
    HOME=/tmp \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# Before the code: an edit to the code then costs seconds, not another download.
# A lock has the hash of every package; a .txt, for machines that no lock is for, has none.
ARG REQUIREMENTS=requirements.lock
COPY requirements*.txt requirements*.lock /tmp/requirements/
RUN case "${REQUIREMENTS}" in *.lock) hashes="--require-hashes --only-binary=:all:" ;; esac \
    && python -m pip install --no-cache-dir --disable-pip-version-check \
      --root-user-action=ignore ${hashes:-} -r "/tmp/requirements/${REQUIREMENTS}" \
    && rm -r /tmp/requirements

# A new named volume takes the folder's owner and mode: it is writable for 1000 and for any --user.
RUN useradd --uid 1000 --no-create-home --home-dir /tmp cifar10 \
    && mkdir -p /data/data /data/output \
    && chown 1000:1000 /data/data /data/output \
    && chmod 0777 /data/data /data/output

# The convolutions for CPUs are compiled beside, so that no compiler stays in the image; on other
# machines than x86-64 they cannot be had (exit code 2), and the image does without.
FROM base AS kernels
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends g++ >/dev/null \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /data
COPY cifar10_program/__init__.py cifar10_program/paths.py cifar10_program/
COPY cifar10/__init__.py cifar10/errors.py cifar10/
COPY cifar10/host/__init__.py cifar10/host/cpu.py cifar10/host/files.py cifar10/host/
COPY cifar10/ops/__init__.py cifar10/ops/
COPY cifar10/kernels/ cifar10/kernels/
RUN mkdir -p cifar10/kernels/built \
    && { python -m cifar10.kernels.build || [ $? -eq 2 ]; }

FROM base
COPY . /data/
COPY --from=kernels /data/cifar10/kernels/built/ /data/cifar10/kernels/built/
# Nobody may write to the code, not even its owner.
RUN python -m compileall -q /data \
    && find /data -mindepth 1 -maxdepth 1 ! -name data ! -name output -exec chmod -R a=rX {} + \
    && chmod 0555 /data

WORKDIR /data
USER 1000:1000
ENTRYPOINT ["python"]
CMD ["/data/cifar10_main.py", "--help"]
