//! What happens. What is recounted of it comes from the evidence.

use super::stage::{MEMBERS, Stage};

/// The stories in the order in which they are recounted.
pub(super) const ALL: [Story; 4] = [Story::OneCall, Story::FiveOfEight, Story::SevenOfEight, Story::Terminated];

/// One story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Story {
    /// A gang on an empty cluster.
    OneCall,
    /// The first zone has too little.
    FiveOfEight,
    /// EC2 launches fewer than the minimum it was given.
    SevenOfEight,
    /// All jobs end.
    Terminated,
}

impl Story {
    /// Folder of its evidence.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OneCall => "1-one-call",
            Self::FiveOfEight => "2-five-of-eight",
            Self::SevenOfEight => "3-seven-of-eight",
            Self::Terminated => "4-given-back",
        }
    }

    /// Its heading.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::OneCall => "1  An empty cluster. A training job of 8 pods with 8 GPUs each is submitted.",
            Self::FiveOfEight => "2  Another job. The first zone has capacity for 5 of its 8 nodes.",
            Self::SevenOfEight => "3  Another job. EC2 starts 7 instances although no fewer than 8 were asked for.",
            Self::Terminated => "4  The jobs end: the first one completes, the others are deleted.",
        }
    }

    /// The job that is submitted in it.
    pub(super) fn job(self) -> Option<&'static str> {
        match self {
            Self::OneCall => Some("train-1"),
            Self::FiveOfEight => Some("train-2"),
            Self::SevenOfEight => Some("train-3"),
            Self::Terminated => None,
        }
    }
}

/// Plays a story to its end. Errors: what did not come in time.
pub(super) async fn play(stage: &Stage, story: Story) -> anyhow::Result<()> {
    match story {
        Story::OneCall => {
            stage.submit("train-1").await?;
            stage.runs("train-1").await
        }
        Story::FiveOfEight => {
            let zone = stage.first_zone().await?;
            let undo = stage.shrink(&zone, u64::from(MEMBERS) - 3).await?;
            stage.submit("train-2").await?;
            stage.runs("train-2").await?;
            stage.change_pools(&undo).await
        }
        Story::SevenOfEight => {
            stage.violate(u32::from(MEMBERS) - 1).await?;
            stage.submit("train-3").await?;
            stage.runs("train-3").await
        }
        Story::Terminated => {
            stage.complete("train-1").await?;
            stage.delete("train-2").await?;
            stage.delete("train-3").await?;
            stage.nothing_is_left().await
        }
    }
}
