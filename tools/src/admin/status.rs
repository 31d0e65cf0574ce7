//! `palisade status`: whether structural change can be admitted, and what goes on while it cannot.

use anyhow::Context;
use palisade_sidecar::admin::AdminClient;

use crate::cli::AdminArgs;
use crate::outcome::Outcome;

pub(crate) async fn run(args: &AdminArgs, json: bool) -> anyhow::Result<Outcome> {
    let client = AdminClient::new(args.admin.clone());
    let status = client.status(args.deadline).await.context("asking for the status")?;
    if json {
        println!("{}", serde_json::to_string(&status)?);
        return Ok(Outcome::Done);
    }
    let majority = &status.majority;
    println!(
        "metadata majority: {} (live {}, needed {}, margin {}), leader {}",
        if majority.held { "held" } else { "LOST" },
        majority.live,
        majority.needed,
        majority.margin,
        majority.leader.as_deref().unwrap_or("none"),
    );
    if !majority.missing.is_empty() {
        println!("missing: {}", majority.missing.join(", "));
    }
    for (word, list) in [("continues", &status.continues), ("stops", &status.stops)] {
        if !list.is_empty() {
            println!("{word}:");
            list.iter().for_each(|line| println!("  {line}"));
        }
    }
    for voter in &status.voters {
        let contact = match voter.last_contact_ms {
            Some(ms) => format!("{ms} ms ago"),
            None => "never".to_owned(),
        };
        let word = if voter.live { "live" } else { "silent" };
        println!("voter {} {word}, last contact {contact}, at {}", voter.name, voter.address);
    }
    for node in &status.nodes {
        let word = if node.gone { "gone" } else { "here" };
        let owned = node.partitions_owned;
        println!("node {} {word}, owns {owned} partitions, at {}", node.name, node.data_address);
    }
    println!("as of {} ms ago", status.age_ms);
    Ok(Outcome::Done)
}
