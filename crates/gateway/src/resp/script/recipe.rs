//! What a known script does, and what it answers.

/// The steps of a known script. Arguments are counted as in Lua, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) struct Recipe {
    pub(in crate::resp) action: Action,
    /// Which argument is the value that the keys have to have.
    pub(in crate::resp) value: usize,
    pub(in crate::resp) yes: Yes,
    pub(in crate::resp) no: No,
    /// The script looks at its first key only, however many it is given.
    pub(in crate::resp) one_key: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Action {
    /// Removes each key that has the value.
    Release,
    /// Gives the keys a new end if they have the value.
    Extend(Time),
    /// .. or the usual one, where the time is 0.
    ExtendOrKeep(Time),
    /// Adds to the time that is left, or sets it anew where a third argument says so.
    AddTime,
    /// Sets the keys if none is there.
    Take(Time),
    /// .. or gives them a new end if they have the value already.
    TakeOrExtend(Time),
    /// .. or if what is there begins like the value, as far as the second argument says.
    TakeOrReplace(Time),
    /// Tells how many milliseconds the keys are still kept, if they have the value.
    TimeLeft,
    /// Tells whether the key has the value.
    IsHeld,
    /// Does nothing that lasts.
    Nothing,
}

/// Which argument says for how long, and in what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Time {
    Seconds(usize),
    Milliseconds(usize),
}

/// What is answered when it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Yes {
    One,
    Ok,
    /// 1 when something was there already, else `OK`.
    OneOrOk,
    /// How many keys it was done to.
    Count,
}

/// .. and when not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum No {
    Number(i64),
    Nil,
    /// -1 when nothing was there, else 0.
    MinusOneIfAbsent,
}
