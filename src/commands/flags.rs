//! Flags that `plan`, `explain` and `record` share, and their files.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use muster_replay::command::{Arguments, Format, Output};
use muster_replay::dump::Input;
use muster_replay::plan::{MinValues, Preferences};
use muster_viewer::output;
use serde_json::Value;

/// Form of what a command prints: the same words for every command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people.
    #[default]
    Table,
    /// With what a line of 80 columns has no place for; where a command has nothing more to show, the same as `table`.
    Wide,
    /// For programs.
    Json,
    /// The same as YAML.
    Yaml,
    /// Names alone, as kubectl takes them.
    Name,
}

impl Form {
    /// What is to be made first: the JSON is what the other forms for programs are made of.
    #[must_use]
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Table => Format::Table,
            Self::Wide => Format::Wide,
            Self::Json | Self::Yaml | Self::Name => Format::Json,
        }
    }

    /// The text in this form, made of what [`Form::format`] asks for.
    ///
    /// Errors: those of serialisation.
    pub(crate) fn of(self, text: String, names: fn(&Value) -> Vec<String>) -> anyhow::Result<String> {
        let parsed = || serde_json::from_str::<Value>(&text).context("read the document");
        Ok(match self {
            Self::Table | Self::Wide | Self::Json => text,
            Self::Yaml => serde_saphyr::to_string(&parsed()?).context("write YAML")?,
            Self::Name => names(&parsed()?).into_iter().map(|name| format!("{name}\n")).collect(),
        })
    }

    /// Prints a value, or the text for people.
    ///
    /// Errors: those of serialisation and of standard output.
    pub(crate) fn print(
        self,
        table: impl FnOnce() -> String,
        value: &impl serde::Serialize,
        names: fn(&Value) -> Vec<String>,
    ) -> anyhow::Result<()> {
        let mut text = match self.format() {
            Format::Table | Format::Wide => table(),
            Format::Json => serde_json::to_string_pretty(value).context("write JSON")?,
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        print(Ok(Output { text: self.of(text, names)?, code: 0 })).map(|_| ())
    }
}

/// The strings at `field` of every element of the list at `list`, behind a prefix.
pub(crate) fn each(value: &Value, list: &str, field: &str, prefix: &str) -> Vec<String> {
    let all = value.get(list).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| one.get(field)?.as_str()).map(|name| format!("{prefix}{name}")).collect()
}

/// How a dump is read and planned.
#[derive(Clone, Debug, Args)]
pub(crate) struct Flags {
    /// Node label keys of the topology levels, top to bottom; without it those of the recording, else those that the
    /// nodes carry.
    #[arg(long, value_delimiter = ',', value_name = "KEY")]
    pub(crate) levels: Vec<String>,
    /// Whose pods are planned; the pods of every other scheduler only take capacity. Without it those of the recording, else
    /// `muster`.
    #[arg(long, value_name = "NAME")]
    pub(crate) scheduler_name: Vec<String>,
    /// Instance types and prices; without it a built-in table of types for distributed training.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalogue: Option<PathBuf>,
    /// The moment to plan for; without it that of the recording, else the newest one in the dump.
    #[arg(long, value_name = "RFC3339")]
    pub(crate) now: Option<String>,
    /// What is best: a file with `placement` (locality, packing) and `elastic` (spread, inside).
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// What preferences of pods without a gang are worth: `respect` drops them one at a time where a pod finds no place
    /// with them, `ignore` drops all of them at once.
    #[arg(long, value_enum, default_value_t = PreferencesFlag::Respect, value_name = "HOW")]
    pub(crate) preferences: PreferencesFlag,
    /// What minValues of NodePools are worth for pods without a gang: `strict` refuses a pod for which no node leaves as
    /// many values, `best-effort` drops those of a pool where pods find no place with them.
    #[arg(long, value_enum, default_value_t = MinValuesFlag::Strict, value_name = "HOW")]
    pub(crate) min_values: MinValuesFlag,
    /// New nodes carry Karpenter's labels too: `karpenter.sh/capacity-type` and `karpenter.k8s.aws/instance-*`.
    #[arg(long)]
    pub(crate) karpenter_labels: bool,
}

/// Values of `--preferences`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PreferencesFlag {
    /// They count.
    Respect,
    /// They do not.
    Ignore,
}

/// Values of `--min-values`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MinValuesFlag {
    /// They are required.
    Strict,
    /// They are dropped where they cannot be kept.
    BestEffort,
}

/// Texts with their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    files: Vec<(String, String)>,
    catalogue: Option<(String, String)>,
    policy: Option<(String, String)>,
}

impl Texts {
    /// Reads every file that is named.
    ///
    /// Errors: the file and what is wrong with it.
    pub(crate) fn read(files: &[PathBuf], flags: &Flags) -> Result<Self, String> {
        let read = |path: &Option<PathBuf>| path.as_deref().map(named).transpose();
        Ok(Self {
            files: files.iter().map(|path| named(path)).collect::<Result<_, _>>()?,
            catalogue: read(&flags.catalogue)?,
            policy: read(&flags.policy)?,
        })
    }

    /// A text that is in no file.
    pub(crate) fn push(&mut self, name: &str, text: String) {
        self.files.push((name.to_owned(), text));
    }

    /// How large the dumps are.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.files.iter().map(|(_, text)| text.len()).sum()
    }

    /// The dumps.
    #[must_use]
    pub(crate) fn inputs(&self) -> Vec<Input<'_>> {
        self.files.iter().map(input).collect()
    }

    /// All of it, for the reader.
    #[must_use]
    pub(crate) fn arguments<'a>(&'a self, flags: &'a Flags, format: Format) -> Arguments<'a> {
        Arguments {
            files: self.inputs(),
            format,
            levels: flags.levels.clone(),
            scheduler_names: flags.scheduler_name.clone(),
            catalogue: self.catalogue.as_ref().map(input),
            now: flags.now.as_deref(),
            policy: self.policy.as_ref().map(input),
            preferences: match flags.preferences {
                PreferencesFlag::Respect => Preferences::Respect,
                PreferencesFlag::Ignore => Preferences::Ignore,
            },
            min_values: match flags.min_values {
                MinValuesFlag::Strict => MinValues::Strict,
                MinValuesFlag::BestEffort => MinValues::BestEffort,
            },
            karpenter_labels: flags.karpenter_labels,
        }
    }
}

/// Prints a line.
///
/// Errors: those of standard output.
pub(crate) fn say(line: &str) -> anyhow::Result<()> {
    output::write(&format!("{line}\n")).context("write the answer")
}

/// Prints an output, or what is wrong with the input on standard error: exit code 2.
///
/// Errors: those of standard output.
pub(crate) fn print(printed: Result<Output, String>) -> anyhow::Result<ExitCode> {
    match printed {
        Ok(printed) => {
            output::write(&printed.text).context("write the answer")?;
            Ok(ExitCode::from(printed.code))
        }
        Err(message) => {
            output::report(message);
            Ok(ExitCode::from(2))
        }
    }
}

fn input(file: &(String, String)) -> Input<'_> {
    Input { name: &file.0, text: &file.1 }
}

fn unread(path: &Path, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        std::io::ErrorKind::IsADirectory => "name a file, or several",
        std::io::ErrorKind::InvalidData => "it holds no text: name a YAML or JSON file",
        std::io::ErrorKind::PermissionDenied => "it may not be read by you",
        _ => "name a file that exists, or - for what is piped in",
    };
    format!("read {}: {error}; {remedy}", path.display())
}

/// Name and text of a file that an argument names; `-`: of standard input.
///
/// Errors: why it cannot be read, and what to name instead.
pub(crate) fn named(path: &Path) -> Result<(String, String), String> {
    let failed = |error: std::io::Error| unread(path, &error);
    let name = path.display().to_string();
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok((name, text));
    }
    Ok((name, std::fs::read_to_string(path).map_err(failed)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_answered_with_what_to_name_instead() {
        let folder = std::env::temp_dir();
        assert!(named(&folder).unwrap_err().ends_with("name a file, or several"));
        let missing = named(Path::new("/no/such/file")).unwrap_err();
        assert!(
            missing.starts_with("read /no/such/file: ") && missing.contains("name a file that exists"),
            "{missing}"
        );
        let binary = std::env::current_exe().unwrap();
        assert!(named(&binary).unwrap_err().contains("it holds no text"));
    }
}
