//! Bots and checks written with well-known libraries, unmodified: they are in `tests/clients`, and `tests/install-clients.sh` gets what they
//! need. Where it was not run these tests are skipped.

/// Turns each function into one test per library.
macro_rules! with_every_library {
    ($($name:ident)*) => {
        with_every_library!(@ python_telegram_bot PythonTelegramBot $($name)*);
        with_every_library!(@ pywa Pywa $($name)*);
        with_every_library!(@ py_telegram_bot_api PyTelegramBotApi $($name)*);
        with_every_library!(@ grammy Grammy $($name)*);
        with_every_library!(@ telegraf Telegraf $($name)*);
    };
    (@ $module:ident $library:ident $($name:ident)*) => {
        mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::libraries::stage::Library::$library).await;
            })*
        }
    };
}

mod dropin;
mod polling;
mod stage;

use hapax_gateway::settings::Channel;
use hapax_providers::settings::Settings;
use hapax_testkit::fake_provider::Play;

pub(crate) use self::stage::post_signed;
use self::stage::{Home, Library, SECRET, Stage};
use crate::rig::{Opened, Rig, channel};

with_every_library! {
    a_killed_handler_runs_again_and_by_itself_sends_again
}

/// With the library's own check of the secret or the signature. That the first message comes twice shows that the other tests look.
async fn a_killed_handler_runs_again_and_by_itself_sends_again(library: Library) {
    let stage = Stage::new(library, "", |_| Play::Act).await;
    let Some(bot) = stage.home.start(&stage.phones.url()).await else { return };
    let _hapax = stage.hapax().await;
    stage.home.tell("die");
    stage.write(1, "hello").await;
    bot.died().await;
    let _bot = stage.home.start(&stage.phones.url()).await;
    stage.settled().await;
    let texts: Vec<String> = stage.arrived(1).into_iter().filter_map(|arrived| arrived.text).collect();
    assert_eq!(texts, ["hello: 1 of 3", "hello: 1 of 3", "hello: 2 of 3", "hello: 3 of 3"]);
}

/// What hapax delivers has a signature of its own, made of the channel's secret; a stranger's the libraries refuse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_libraries_of_stripe_and_standard_webhooks_believe_what_is_delivered() {
    let folder = crate::quick_folder();
    let home = Home::new(Library::Verifiers, folder.path());
    let Some(_bot) = home.start("").await else { return };
    let providers = |secret: &str| {
        let secrets = || vec![secret.to_owned().into()];
        [("stripe", Settings::Stripe { secrets: secrets() }), ("standard", Settings::Standard { secrets: secrets() })]
    };
    let channels = providers(SECRET).map(|(name, provider)| {
        let target = Some(home.url(&format!("/{name}")));
        Channel { provider, ..channel(name, target) }
    });
    let rig = Rig::start(Opened::memory(), channels.into()).await;
    let body = r#"{"id":"evt_1","object":"event","type":"invoice.paid","created":1760000000,"data":{"object":{"id":"in_1"}}}"#;
    for (name, settings) in providers(SECRET) {
        assert_eq!(post_signed(&settings, &rig.url(&format!("/in/{name}")), body.to_owned()).await, 200);
    }
    rig.settled().await;
    let mut rows = home.rows();
    rows.sort();
    assert_eq!(rows, [("standard", "invoice.paid"), ("stripe", "evt_1")].map(|(name, id)| (name.to_owned(), id.to_owned())));
    for (name, settings) in providers("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD") {
        assert_eq!(post_signed(&settings, &home.url(&format!("/{name}")), body.to_owned()).await, 400, "{name}");
    }
}
