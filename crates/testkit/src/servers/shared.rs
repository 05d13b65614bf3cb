//! One server for many test processes: found by a note, started by whoever finds none, stopped by its keeper when nobody is left.
//!
//! A test process shares a lock for as long as it lives. The keeper is a shell beside the server that tries to have the lock alone; when
//! it could for a while, it ends the server and removes the folder. A note whose folder is gone, or whose server does not answer, is void.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Recipe, ServerError, answers, free_ports, greeted, new_folder};

/// `$0` is the lock, then come the folder, the signal to stop on, and the server's command.
const KEEPER: &str = r#"
lock=$0 folder=$1 signal=$2
shift 2
"$@" </dev/null >"$folder/log" 2>&1 &
server=$!
idle=0
while kill -0 $server 2>/dev/null; do
    sleep 2
    if flock -n -x "$lock" true; then idle=$((idle + 1)); else idle=0; fi
    [ $idle -ge 10 ] || continue
    # Whoever comes now waits for the lock, and finds no server.
    exec 9<"$lock"
    if flock -n -x 9; then break; fi
    exec 9<&-
done
kill -"$signal" $server 2>/dev/null
( sleep 10; kill -9 $server ) >/dev/null 2>&1 9<&- &
wait $server
rm -rf "$folder"
"#;

/// Gives the port of the server that is there, or of one that it starts.
pub(super) async fn join(recipe: &'static dyn Recipe, program: &Path) -> Result<u16, ServerError> {
    let home = std::env::temp_dir().join(format!("hapax-servers-{}", rustix::process::geteuid().as_raw()));
    std::fs::create_dir_all(&home)?;
    let lock = home.join(format!("{}.lock", recipe.name()));
    // Held until this process ends, however it ends.
    std::mem::forget(locked(lock.clone(), File::lock_shared).await?);

    let note = home.join(format!("{}.note", recipe.name()));
    if let Some(port) = noted(recipe, &note).await {
        return Ok(port);
    }
    let _starting = locked(home.join(format!("{}.starting", recipe.name())), File::lock).await?;
    if let Some(port) = noted(recipe, &note).await {
        return Ok(port);
    }
    let folder = new_folder(recipe.name())?;
    recipe.prepare(program, &folder).await?;
    let port = free_ports(recipe.ports())?;
    let mut keeper = start(recipe, program, &lock, &folder, port)?;
    answers(recipe, port, &folder, || keeper.try_wait().is_ok_and(|ended| ended.is_some())).await?;
    std::fs::write(&note, format!("{port} {}", folder.display()))?;
    Ok(port)
}

async fn locked(path: PathBuf, take: fn(&File) -> io::Result<()>) -> Result<File, ServerError> {
    let waiting = tokio::task::spawn_blocking(move || {
        let file = File::options().create(true).append(true).open(path)?;
        take(&file)?;
        Ok::<_, io::Error>(file)
    });
    Ok(waiting.await??)
}

async fn noted(recipe: &dyn Recipe, note: &Path) -> Option<u16> {
    let text = std::fs::read_to_string(note).ok()?;
    let (port, folder) = text.split_once(' ')?;
    let port = port.parse().ok()?;
    (Path::new(folder).is_dir() && greeted(recipe, port).await.is_ok()).then_some(port)
}

/// In a process group of its own, so that what ends the test does not end the others' server.
fn start(recipe: &dyn Recipe, program: &Path, lock: &Path, folder: &Path, port: u16) -> io::Result<std::process::Child> {
    let mut keeper = Command::new("sh");
    keeper
        .arg("-c")
        .arg(KEEPER)
        .arg(lock)
        .arg(folder)
        .arg(recipe.stop_signal().as_raw().to_string())
        .args(recipe.line(program, folder, port));
    keeper.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()
}
