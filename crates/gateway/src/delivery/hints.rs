//! What probably is wrong when a bot does not take what it is given. The address is for people who may see it, and never for the log: its
//! path may be a secret.

/// Says in a sentence what to look at, where a reason has a usual cause.
pub fn likely_cause(why: &str, url: &str) -> Option<String> {
    let answered = |status: &str| why.contains(&format!("answered {status}"));
    let redirects = ["301", "302", "303", "307", "308"];
    let cause = if answered("404") {
        format!("there is nothing at {url}: is the path in `target` the one that the bot listens on?")
    } else if answered("401") || answered("403") {
        format!(
            "the bot at {url} does not believe it: does it check with the same secret as the channel's `secret`, or does it want a login \
             (`target = \"http://user:password@..\"`)?"
        )
    } else if answered("405") {
        format!("the bot takes no POST at {url}: is the path in `target` right?")
    } else if redirects.iter().any(|status| answered(status)) {
        format!("{url} redirects, which is not followed: put the last address into `target`")
    } else if why.contains("refused") {
        format!("nothing listens at {url}: is the bot running?")
    } else if why.contains("no answer within") {
        format!("the bot at {url} is slower than the channel's `timeout`: raise it, if the bot may take that long")
    } else if why.contains("cannot be reached") {
        format!("{url} cannot be reached from here: is the host in `target` right?")
    } else {
        return None;
    };
    Some(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_causes_name_the_address_and_what_to_look_at() {
        let url = "http://127.0.0.1:3000/hook";
        for (why, hint) in [
            ("the target answered 404", "the path in `target`"),
            ("the target answered 401; that was failure 3 of 3", "the same secret"),
            ("the target answered 405", "no POST"),
            ("the target answered 302", "not followed"),
            ("the target cannot be reached: Connection refused", "is the bot running?"),
            ("the target cannot be reached: no connection within 500 ms", "from here"),
            ("no answer within 30000 ms", "`timeout`"),
        ] {
            let cause = likely_cause(why, url).unwrap_or_default();
            assert!(cause.contains(hint) && cause.contains(url), "{why}: {cause}");
        }
        assert_eq!(likely_cause("the target answered 500", url), None);
    }
}
