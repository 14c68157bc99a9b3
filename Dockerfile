# The environment of this project. CPU and GPU alike: torch's Linux wheels bring CUDA.
#   docker build -t posttrain .                              README's two commands run in it
#   docker build -t posttrain --build-arg EXTRAS=vllm .      on GPUs, with vLLM as sampler
#   docker run --rm -it [--gpus all --shm-size 16g] -v "$PWD":/work posttrain dvc repro
# The checkout is mounted, so that results stay outside; a pod of flows/clusters.md mounts its volume.
FROM python:3.12-slim
ARG EXTRAS=test
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && git config --system --add safe.directory '*'
COPY . /posttrain
WORKDIR /posttrain
RUN pip install --no-cache-dir -c constraints.txt -e ".[${EXTRAS}]"
WORKDIR /work
