//! The scripts that are known. Short ones are idioms that every library writes alike and are spelt out; of the longer ones there is the
//! SHA-1 of the form that [`super::lua`] gives them.

use super::recipe::{Action, No, Recipe, Time, Yes};

const fn recipe(action: Action, yes: Yes, no: No) -> Recipe {
    Recipe { action, value: 1, yes, no, one_key: false }
}

const SECONDS: Time = Time::Seconds(2);
const MS: Time = Time::Milliseconds(2);
const THIRD_MS: Time = Time::Milliseconds(3);
const ZERO: No = No::Number(0);

const RELEASE: Recipe = recipe(Action::Release, Yes::One, ZERO);
const RELEASE_TRUE: Recipe = recipe(Action::Release, Yes::One, No::Nil);
const EXTEND: Recipe = recipe(Action::Extend(MS), Yes::One, ZERO);
const TAKE: Recipe = recipe(Action::Take(MS), Yes::One, ZERO);

pub(super) const SPELT: &[(&str, Recipe)] = &[
    // The one of Redis' own documents: Laravel, redlock in most languages, redsync before 4.12, redislock before 0.9.5, ShedLock, Symfony before 5.2.
    (r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0"#, RELEASE),
    (r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("unlink", KEYS[1]) end return 0"#, RELEASE),
    (r#"if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("del", KEYS[1]) return 1 end return 0"#, RELEASE),
    (r#"if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("del", KEYS[1]) return true end return false"#, RELEASE_TRUE),
    // Spring Integration
    (r#"if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("unlink", KEYS[1]) return true end return false"#, RELEASE_TRUE),
    // redis-py
    (
        r#"if not redis.call("get", KEYS[1]) or redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 end redis.call("del", KEYS[1]) return 1"#,
        RELEASE,
    ),
    (
        r#"if not redis.call("get", KEYS[1]) or redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 end redis.call("pexpire", KEYS[1], ARGV[2]) return 1"#,
        EXTEND,
    ),
    (
        r#"if not redis.call("get", KEYS[1]) or redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 end
           local left = redis.call("pttl", KEYS[1]) if not left then left = 0 end if left < 0 then return 0 end
           local time = ARGV[2] if ARGV[3] == "0" then time = ARGV[2] + left end redis.call("pexpire", KEYS[1], time) return 1"#,
        recipe(Action::AddTime, Yes::One, ZERO),
    ),
    // redsync
    (
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1])
           elseif redis.call("get", KEYS[1]) == false then return -1 end return 0"#,
        recipe(Action::Release, Yes::One, No::MinusOneIfAbsent),
    ),
    (r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0"#, EXTEND),
    (
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2])
           elseif redis.call("set", KEYS[1], ARGV[1], "px", ARGV[2], "nx") then return 1 end return 0"#,
        recipe(Action::TakeOrExtend(MS), Yes::One, ZERO),
    ),
    (
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("expire", KEYS[1], ARGV[2]) end return 0"#,
        recipe(Action::Extend(SECONDS), Yes::One, ZERO),
    ),
    // Laravel
    (
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then if ARGV[2] > 0 then return redis.call("expire", KEYS[1], ARGV[2]) end
           redis.call("persist", KEYS[1]) return 1 end return 0"#,
        recipe(Action::ExtendOrKeep(SECONDS), Yes::One, ZERO),
    ),
    (
        r#"return redis.call("exists", KEYS[1]) < 1 and redis.call("setex", KEYS[1], ARGV[2], ARGV[1])"#,
        recipe(Action::Take(SECONDS), Yes::Ok, No::Nil),
    ),
    // redislock
    (
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pttl", KEYS[1]) end return -3"#,
        recipe(Action::TimeLeft, Yes::Count, No::Number(-3)),
    ),
    // Symfony before 5.2
    (
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2])
           end return redis.call("set", KEYS[1], ARGV[1], "nx", "px", ARGV[2])"#,
        recipe(Action::TakeOrExtend(MS), Yes::OneOrOk, No::Nil),
    ),
    // Spring Integration
    (
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("pexpire", KEYS[1], ARGV[2]) return true
           elseif not redis.call("get", KEYS[1]) then redis.call("set", KEYS[1], ARGV[1], "px", ARGV[2]) return true end return false"#,
        recipe(Action::TakeOrExtend(MS), Yes::One, No::Nil),
    ),
    (
        r#"if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("pexpire", KEYS[1], ARGV[2]) return true end return false"#,
        recipe(Action::Extend(MS), Yes::One, No::Nil),
    ),
    // `SET` with its conditions, in a script
    (r#"return redis.call("set", KEYS[1], ARGV[1], "nx", "px", ARGV[2])"#, recipe(Action::Take(MS), Yes::Ok, No::Nil)),
    (r#"return redis.call("set", KEYS[1], ARGV[1], "nx", "ex", ARGV[2])"#, recipe(Action::Take(SECONDS), Yes::Ok, No::Nil)),
    (r#"if redis.call("set", KEYS[1], ARGV[1], "nx", "px", ARGV[2]) then return 1 end return 0"#, TAKE),
    (r#"if redis.call("setnx", KEYS[1], ARGV[1]) == 1 then redis.call("pexpire", KEYS[1], ARGV[2]) return 1 end return 0"#, TAKE),
    // redlock for Node: several keys at once
    (
        r#"for i, key in ipairs(KEYS) do if redis.call("exists", key) == 1 then return 0 end end
           for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "px", ARGV[2]) end return #KEYS"#,
        recipe(Action::Take(MS), Yes::Count, ZERO),
    ),
    (
        r#"for i, key in ipairs(KEYS) do if redis.call("get", key) ~= ARGV[1] then return 0 end end
           for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "px", ARGV[2]) end return #KEYS"#,
        recipe(Action::Extend(MS), Yes::Count, ZERO),
    ),
    (
        r#"local count = 0 for i, key in ipairs(KEYS) do
           if redis.call("get", key) == ARGV[1] then redis.call("del", key) count = count + 1 end end return count"#,
        recipe(Action::Release, Yes::Count, ZERO),
    ),
];

pub(super) const HASHED: &[(&str, Recipe)] = &[
    // redislock from 0.9.5: several keys at once
    ("08f85896ba52cfcff630d8188214a1dd5bef8f02", recipe(Action::TakeOrReplace(THIRD_MS), Yes::Ok, No::Nil)),
    ("b64c3cbaaddb333515b805ee16512d2bbac73c09", recipe(Action::Extend(MS), Yes::Ok, No::Nil)),
    ("e3e1a98cbc7143948a92d424edb25e846d9cce00", recipe(Action::TimeLeft, Yes::Count, No::Nil)),
    ("cda4e4e59c667a0d97bfd933c3d904b07a83e04a", recipe(Action::Release, Yes::Ok, No::Nil)),
    // Symfony from 5.2, without shared locks: whether scripts may ask for the time, take, extend, release, look
    ("642cccc8caa6eba77b71f20b83e4216859fab41d", recipe(Action::Nothing, Yes::One, ZERO)),
    (
        "7558ed32f49118cb18b216246acfb1b3fa0cd921",
        Recipe { value: 2, ..recipe(Action::TakeOrExtend(THIRD_MS), Yes::One, No::Nil) },
    ),
    ("8c07986e029b64da262e07d16f2c6674b705d356", Recipe { value: 2, ..recipe(Action::Extend(THIRD_MS), Yes::One, No::Nil) }),
    ("ec1916c1052b7ec91b0429ce6f1ab6ccdbf3ba84", RELEASE_TRUE),
    ("e44034df8e146a8b7619a8a477c19c333ab4af52", Recipe { value: 2, ..recipe(Action::IsHeld, Yes::One, No::Nil) }),
];
