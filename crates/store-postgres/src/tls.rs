//! TLS towards the server, as `sslmode` asks for it.

use std::sync::Arc;

use hapax_store::StoreError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

/// `sslmode=require`: the server must show a certificate for its name that the machine's own roots vouch for.
pub(super) fn verified() -> Result<MakeRustlsConnect, StoreError> {
    let (connect, _) = MakeRustlsConnect::with_native_certs().map_err(|errors| {
        let why = errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string);
        StoreError::Refused(format!("sslmode=require needs the machine's root certificates, and they cannot be read: {why}"))
    })?;
    Ok(connect)
}

/// `sslmode=prefer`: encrypted if the server can, whoever it is. Whoever could forge a certificate could also say that there is no TLS.
pub(super) fn encrypted() -> Result<MakeRustlsConnect, StoreError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let config = config.map_err(|error| StoreError::Refused(format!("no TLS: {error}")))?;
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Takes any certificate, and checks that the server owns it.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
