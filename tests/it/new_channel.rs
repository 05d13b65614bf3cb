//! The page that leads to a channel: it writes the file only where that is allowed, checked and whole, and shows no secret again.

use hapax_testkit::process::Program;
use reqwest::redirect::Policy;

use crate::program::{ADMIN_TOKEN, disk_folder, store_path};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

struct Person {
    client: reqwest::Client,
    base: String,
    cookie: String,
}

impl Person {
    async fn sign_in(base: String) -> Self {
        let client = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().expect("a client");
        let mut person = Self { client, base, cookie: String::new() };
        let form = format!("token={ADMIN_TOKEN}");
        let request = person.client.post(format!("{}/sign-in", person.base)).header("origin", &person.base);
        let answer =
            request.header("content-type", "application/x-www-form-urlencoded").body(form).send().await.expect("an answer");
        person.cookie = answer.headers()["set-cookie"].to_str().expect("text").split(';').next().expect("a pair").to_owned();
        person
    }

    async fn see(&self, path: &str) -> String {
        let request = self.client.get(format!("{}{path}", self.base)).header("cookie", &self.cookie);
        request.send().await.expect("an answer").text().await.expect("a page")
    }

    async fn post(&self, path: &str, form: &str) -> (u16, String) {
        let request =
            self.client.post(format!("{}{path}", self.base)).header("origin", &self.base).header("cookie", &self.cookie);
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(form.to_owned());
        let answer = request.send().await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a page"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_leads_to_a_channel_and_writes_it_where_that_is_allowed() {
    let folder = disk_folder();
    let config = |more: &str| {
        let store = store_path(folder.path());
        format!(
            "# ours\nlisten = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n{more}[log]\nfilter = \"off\"\n",
            store.display()
        )
    };
    let start = async |config: &str| {
        let program = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), config).expect("a config file");
        let (process, at) = program.serve().await.expect("it starts");
        (process, Person::sign_in(format!("http://{at}")).await)
    };
    let file = || std::fs::read_to_string(folder.path().join("hapax.toml")).expect("readable");
    let chosen = "provider=stripe&name=pay&target=http://127.0.0.1:3000/hook";

    // Not allowed: it shows what to write, and says why it does not.
    let (process, person) = start(&config("")).await;
    assert!(
        person.see("/").await.contains("href=\"/new-channel\"")
            && person.see("/channels").await.contains("href=\"/new-channel\"")
    );
    let (status, page) = person.post("/new-channel", chosen).await;
    for words in ["[channel.pay]", "/in/pay", "Add endpoint", "write_config = true"] {
        assert!(status == 200 && page.contains(words), "{words}: {page}");
    }
    let (status, page) = person.post("/new-channel/write", &format!("{chosen}&secret={SECRET}")).await;
    assert!(status == 422 && !page.contains(SECRET), "{page}");
    assert_eq!(file(), config(""));
    process.stop().await.expect("it stops");

    let allowed = config("write_config = true\n");
    let (process, person) = start(&allowed).await;
    for (odd, words) in [
        ("provider=nobody&name=pay", "from the list"),
        ("provider=stripe&name=a%20b", "letters, digits"),
        ("provider=stripe&name=pay&target=file:///etc/passwd", "begins with http://"),
    ] {
        let (status, page) = person.post("/new-channel", odd).await;
        assert!(status == 422 && page.contains(words), "{odd}: {page}");
    }
    let (status, page) = person.post("/new-channel/write", chosen).await;
    assert!(
        status == 422 && page.contains("STRIPE_WEBHOOK_SECRET") && file() == allowed,
        "its secret is not in the environment: {page}"
    );
    let (status, page) = person.post("/new-channel/write", &format!("{chosen}&secret={SECRET}")).await;
    assert!(status == 200 && page.contains("hapax reload") && !page.contains(SECRET), "{page}");
    let text = file();
    assert!(
        text.starts_with(allowed.trim_end())
            && text.contains(&format!("[channel.pay]\nprovider = \"stripe\"\nsecret = \"{SECRET}\"\n")),
        "{text}"
    );
    let (status, page) = person.post("/new-channel/write", &format!("{chosen}&secret={SECRET}")).await;
    assert!(status == 422 && file() == text && !page.contains(SECRET), "once: {page}");
    let audit = person.see("/audit").await;
    assert!(audit.contains("channel add") && audit.contains("pay") && !audit.contains(SECRET), "{audit}");
    process.stop().await.expect("it stops");

    let (process, person) = start(&text).await;
    assert!(person.see("/channels").await.contains("href=\"/channels/pay\""));
    let (status, page) = person.post("/new-channel", chosen).await;
    assert!(status == 422 && page.contains("already"), "{page}");
    process.stop().await.expect("it stops");
}
