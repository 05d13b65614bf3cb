//! A bot behind a gateway that demands a client certificate and a key of its own in a header.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hapax_testkit::process::Program;
use hapax_testkit::servers::skip;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;

use crate::program::{Poster, disk_folder, program_with};
use crate::rig::{eventually, text};

const API_KEY: &str = "the-key-that-the-gateway-wants";

/// Who vouches for both sides, in files.
struct Papers(PathBuf);

impl Papers {
    /// `None` where there is no openssl.
    async fn make(folder: &Path) -> Option<Self> {
        let papers = Self(folder.to_owned());
        papers.openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem").await?;
        for (name, more) in [("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")] {
            std::fs::write(folder.join(format!("{name}.ext")), more).ok()?;
            papers.openssl(&format!("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr")).await?;
            papers.openssl(&format!("x509 -req -days 2 -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile {name}.ext -out {name}.pem")).await?;
        }
        Some(papers)
    }

    async fn openssl(&self, words: &str) -> Option<()> {
        let made = Command::new("openssl").args(words.split(' ')).current_dir(&self.0).output().await.ok()?;
        made.status.success().then_some(())
    }

    fn pem(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).expect("it was made")
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

/// Takes every webhook with 200, from whoever has a certificate of the authority. What it heard is kept.
async fn strict_bot(papers: &Papers) -> (String, Arc<Mutex<Vec<String>>>) {
    let authority = CertificateDer::from_pem_slice(&papers.pem("ca.pem")).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().expect("a verifier");
    let chain = vec![CertificateDer::from_pem_slice(&papers.pem("server.pem")).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_slice(&papers.pem("server.key")).expect("a key");
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_client_cert_verifier(verifier).with_single_cert(chain, key).expect("a config");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("https://{}/webhook", listener.local_addr().expect("an address"));
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let keep = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, keep) = (acceptor.clone(), Arc::clone(&keep));
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(socket).await else { return };
                let mut request = Vec::new();
                // As much as says who called: the head.
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read_buf(&mut request).await {
                        Ok(1..) => {}
                        _ => return,
                    }
                }
                keep.lock().expect("no panic").push(String::from_utf8_lossy(&request).into_owned());
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
                let _ = stream.shutdown().await;
            });
        }
    });
    (address, heard)
}

fn with_papers(folder: &Path, target: &str, papers: &Papers, certificate: bool) -> Program {
    let mut more = format!("target_ca = \"{}\"\ntarget_headers = {{ \"X-Api-Key\" = \"{API_KEY}\" }}\n", papers.path("ca.pem"));
    if certificate {
        more += &format!("target_cert = \"{}\"\ntarget_key = \"{}\"\n", papers.path("client.pem"), papers.path("client.key"));
    }
    program_with(folder, Some(target), "", &more)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bot_that_demands_a_client_certificate_and_a_key_is_reached_with_them_only() {
    let (folder, papers) = (disk_folder(), disk_folder());
    let Some(papers) = Papers::make(papers.path()).await else {
        return skip("openssl", "apt-get install openssl", true);
    };
    let (target, heard) = strict_bot(&papers).await;
    let poster = Poster::new();

    let (process, at) = with_papers(folder.path(), &target, &papers, false).serve().await.expect("it starts");
    assert_eq!(poster.post_until_taken(at, text("wamid.1", "5511900001")).await.status, 200);
    let tried = async || {
        let metrics = poster.get(at, "/metrics").await.unwrap_or_default();
        let counts = |name: &str| metrics.lines().any(|line| line.starts_with(name) && !line.ends_with(" 0"));
        counts("hapax_delivery_retries_total{channel=\"shop\"}") || counts("hapax_circuit_opened_total{channel=\"shop\"}")
    };
    eventually("the bot was tried without a certificate", tried).await;
    process.stop().await.expect("it stops");
    assert!(heard.lock().expect("no panic").is_empty(), "without a certificate nothing gets through");

    let program = with_papers(folder.path(), &target, &papers, true);
    let (process, _) = program.serve().await.expect("it starts");
    eventually("the webhook is delivered", async || !heard.lock().expect("no panic").is_empty()).await;
    process.stop().await.expect("it stops");
    let request = heard.lock().expect("no panic")[0].clone();
    assert!(request.contains(&format!("x-api-key: {API_KEY}\r\n")), "{request}");
    assert!(request.contains("x-hub-signature-256: sha256=") && request.contains("hapax-event-id: "), "{request}");

    let mut show = Command::new(env!("CARGO_BIN_EXE_hapax"));
    let shown = show.args(["config", "show", "--config"]).arg(folder.path().join("hapax.toml")).output().await.expect("it ran");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("x-api-key = \"(hidden)\"") && !shown.contains(API_KEY), "{shown}");
}
