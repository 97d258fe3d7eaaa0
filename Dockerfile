# The image of the Deployment in manifests/. Build it, push it, and name it in manifests/kustomization.yaml:
#
#   docker build -t REGISTRY/muster:0.1.0 .
#
# The release build optimises the AWS SDK as a whole: over ten minutes on two cores, and 8 GB of memory.
FROM rust:1.95-slim-bookworm AS build
# The image's own toolchain, without the components that rust-toolchain.toml asks for on a developer's machine.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin muster \
 && cp target/release/muster /muster

FROM debian:bookworm-slim
# Roots of trust for EC2's endpoints; the API server's comes with the service account.
RUN apt-get update \
 && apt-get install --no-install-recommends --yes ca-certificates \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /muster /usr/local/bin/muster
# The number in the Deployment's securityContext.
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/muster"]
CMD ["serve"]
