# A small image that runs as nobody in particular. Build it with: docker build -t hapax .
FROM rust:1-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG REVISION=unknown
RUN HAPAX_REVISION=$REVISION cargo build --release --locked -p hapax-server && mkdir -p /out/data && cp target/release/hapax /out/hapax

# glibc, certificates and nothing else: no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/hapax /usr/bin/hapax
COPY --from=build --chown=nonroot:nonroot /out/data /data
WORKDIR /data
VOLUME /data
# Providers post to 4272; /v1 and /metrics are on 4273, which is not for the world: publish it to 127.0.0.1 only.
ENV HAPAX_LISTEN=0.0.0.0:4272 HAPAX_ADMIN_LISTEN=0.0.0.0:4273 HAPAX_STORE=sqlite:/data/hapax.db
EXPOSE 4272 4273
USER nonroot
# Longer than stop_grace must `docker stop --time 40` wait.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/usr/bin/hapax", "ready"]
ENTRYPOINT ["/usr/bin/hapax"]
CMD ["serve"]
