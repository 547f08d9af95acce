//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::Result;

/// What `--help` prints.
pub const HELP: &str = "\
The same work on onceledger and on what people use instead, as a table of ratios.

    --quick           under 3 minutes: shorter windows, populations divided by 12,
                      rows for orientation only with --only
    --only SUBSTRING  only rows whose work or peer contains it (any case)
    --json            one JSON object a row on stdout, everything else on stderr
    --dir DIR         where the stores are made, on a disk (default: the target directory)
    --rounds N        interleaved rounds (default 5)
    --seconds S       length of one measurement (default 1.5, quick 0.25)
    --divide N        divide every population by N (default 1, quick 12)
    --list            print the rows and stop
";

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Print JSON.
    pub json: bool,
    /// A quick run.
    pub quick: bool,
    /// Print the rows and stop.
    pub list: bool,
    /// A substring of the rows wanted.
    pub only: Option<String>,
    /// Where stores are made.
    pub dir: PathBuf,
    /// Interleaved rounds.
    pub rounds: usize,
    /// Length of one measurement.
    pub window: Duration,
    /// What populations are divided by.
    pub divide: u64,
    /// The arguments to repeat for the other package, `--json` and `--list` apart.
    pub repeat: Vec<String>,
}

impl Options {
    /// Reads the arguments after the program's name. `None` asks for [`HELP`].
    pub fn read(arguments: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let (mut json, mut list, mut quick) = (false, false, false);
        let (mut only, mut dir, mut rounds, mut seconds, mut divide) = (None, None, None, None, None);
        let mut repeat = Vec::new();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            let taken = match argument.as_str() {
                "--json" => {
                    json = true;
                    continue;
                }
                "--list" => {
                    list = true;
                    continue;
                }
                "--help" | "-h" => return Ok(None),
                "--quick" => {
                    quick = true;
                    None
                }
                "--only" => Some(only.insert(value()?).clone()),
                "--dir" => {
                    dir = Some(PathBuf::from(value()?));
                    continue;
                }
                "--rounds" => Some(rounds.insert(value()?).clone()),
                "--seconds" => Some(seconds.insert(value()?).clone()),
                "--divide" => Some(divide.insert(value()?).clone()),
                _ => return Err(format!("unknown argument {argument}; see --help").into()),
            };
            repeat.push(argument);
            repeat.extend(taken);
        }
        let seconds: f64 = number(seconds, if quick { 0.25 } else { 1.5 })?;
        Ok(Some(Options {
            json,
            quick,
            list,
            only,
            dir: dir.map_or_else(target_dir, Ok)?,
            rounds: number(rounds, 5)?.max(1),
            window: Duration::try_from_secs_f64(seconds)?,
            divide: number(divide, if quick { 12 } else { 1 })?.max(1),
            repeat,
        }))
    }

    /// Whether a row is wanted.
    pub fn wants(&self, work: &str, peer: &str) -> bool {
        self.only.as_ref().is_none_or(|only| {
            let only = only.to_lowercase();
            work.to_lowercase().contains(&only) || peer.to_lowercase().contains(&only)
        })
    }

    /// A population, divided.
    pub fn scaled(&self, population: u64) -> u64 {
        if population == 0 { 0 } else { (population / self.divide).max(1) }
    }
}

fn number<T: std::str::FromStr>(text: Option<String>, default: T) -> Result<T> {
    match text {
        Some(text) => text.parse().map_err(|_| format!("{text} is no number that fits").into()),
        None => Ok(default),
    }
}

/// The directory of this program: inside the target directory, so on the disk that builds.
fn target_dir() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().ok_or("the program has no directory")?.to_owned())
}
