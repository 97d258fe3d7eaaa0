# The image of the Deployment in manifests/. Build it, push it, and name it in manifests/kustomization.yaml:
#
#   docker build -t REGISTRY/muster:0.1.0 .
#
# The release build optimises the AWS SDK in one piece: twenty minutes on two cores, and 12 GB of memory. `make test-image` takes the
# same steps without a daemon and looks at what comes of them.
FROM rust:1.95-slim-bookworm AS build
# The image's own toolchain, without the components that rust-toolchain.toml asks for on a developer's machine.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN apt-get update \
 && apt-get install --no-install-recommends --yes ca-certificates \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The bill of materials, in CycloneDX: what the binary is made of, without what only tests need.
RUN cargo install --locked cargo-cyclonedx@0.5.9 \
 && cargo cyclonedx --format json --spec-version 1.5 --target all --override-filename bom
RUN cargo build --release --locked --bin muster
RUN hack/image/rootfs.sh target/release/muster bom.json /image

FROM scratch
COPY --from=build /image /
# The number in the Deployment's securityContext.
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/muster"]
CMD ["serve"]
