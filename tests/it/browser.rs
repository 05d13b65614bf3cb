//! The pages in a real Chromium, driven by playwright: what a person sends twice reaches the phone once, what comes in appears by itself, and
//! everybody can read it. Where Chromium or playwright is not installed, the test is skipped.

use std::path::Path;

use hapax_testkit::fake_provider::{FakeProvider, Play};
use hapax_testkit::process::Program;
use hapax_testkit::servers::skip;
use tokio::process::Command;

use crate::libraries::post_signed;
use crate::program::{ADMIN_TOKEN, store_path};
use crate::rig::eventually;

const SECRET: &str = "a-secret-for-the-browser-test";
/// What strangers write is shown as they wrote it.
const HOSTILE: &str = r#"{"object":"whatsapp_business_account","entry":[{"id":"9","changes":[{"field":"messages","value":{
    "messaging_product":"whatsapp","metadata":{"display_phone_number":"1555","phone_number_id":"700001"},
    "contacts":[{"profile":{"name":"\"><script>alert(1)</script>"},"wa_id":"5511988887777"}],
    "messages":[{"from":"5511988887777","id":"wamid.\"><img src=x onerror=alert(2)>","timestamp":"1760000000","type":"text",
    "text":{"body":"'\"><svg onload=alert(3)><script>alert(4)</script>"}}]}}]}]}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_sends_twice_arrives_once_and_everybody_can_read_it() {
    let clients = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients");
    if !clients.join("node/node_modules/playwright-core").is_dir() || !Path::new("/usr/bin/chromium").exists() {
        return skip("Chromium or playwright-core", "run tests/install-clients.sh", true);
    }
    let (folder, phones) = (crate::quick_folder(), FakeProvider::start(|_| Play::Act).await.expect("phones"));
    let config = format!(
        "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"off\"\n[channel.shop]\n\
         provider = \"whatsapp\"\nsecret = \"{SECRET}\"\ntoken = \"a-token-for-tests-only\"\napi_base = \"{}\"\n",
        store_path(folder.path()).display(),
        phones.url(),
    );
    let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &config).expect("a config file");
    let (hapax, at) = program.serve().await.expect("hapax starts");
    let settings = hapax_providers::settings::Settings::Whatsapp { secrets: vec![SECRET.into()], verify_token: None };
    assert_eq!(post_signed(&settings, &format!("http://{at}/in/shop"), HOSTILE.to_owned()).await, 200);

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/browser.mjs");
    let arguments = [format!("http://{at}"), ADMIN_TOKEN.to_owned(), "700001__5511988887777".to_owned()];
    let ended =
        Command::new("node").arg(script).args(arguments).env("HAPAX_CLIENTS", &clients).output().await.expect("node runs");
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said}");

    let texts = || phones.phone("5511988887777").into_iter().filter_map(|arrived| arrived.text).collect::<Vec<_>>();
    eventually("all are sent", async || texts().len() >= 5).await;
    assert_eq!(texts(), ["a double click", "Enter, and Enter again", "typed twice", "typed twice", "without a script"]);
    hapax.stop().await.expect("it stops");
}
