//! Launch templates.

use crate::support::{SSM, Sim, text, texts};

#[tokio::test]
async fn a_template_is_found_by_id_and_name_and_deleted() {
    let sim = Sim::small();
    let id = sim.template().await;
    for ask in [("LaunchTemplateId.1", id.as_str()), ("LaunchTemplateName.1", "hash-1")] {
        let body = sim.ok("DescribeLaunchTemplates", &[ask]).await;
        assert_eq!(text(&body, "launchTemplateId"), id);
    }
    let body = sim.ok("DeleteLaunchTemplate", &[("LaunchTemplateId", &id)]).await;
    assert_eq!(text(&body, "launchTemplateName"), "hash-1");
    let gone = sim.refused("DescribeLaunchTemplates", &[("LaunchTemplateId.1", &id)]).await;
    assert_eq!(gone.1, "InvalidLaunchTemplateId.NotFound");
    let gone = sim.refused("DeleteLaunchTemplate", &[("LaunchTemplateName", "hash-1")]).await;
    assert_eq!(gone.1, "InvalidLaunchTemplateName.NotFoundException");
}

#[tokio::test]
async fn the_same_token_makes_one_template_and_the_same_name_is_taken() {
    let sim = Sim::small();
    let first = sim.template().await;
    assert_eq!(sim.template().await, first);
    let taken = sim
        .refused(
            "CreateLaunchTemplate",
            &[("LaunchTemplateName", "hash-1"), ("ClientToken", "other"), ("LaunchTemplateData.ImageId", SSM)],
        )
        .await;
    assert_eq!(taken.1, "InvalidLaunchTemplateName.AlreadyExistsException");
}

#[tokio::test]
async fn an_alias_is_resolved_on_request_to_a_known_image() {
    let sim = Sim::small();
    let id = sim.template().await;
    let ask = [("LaunchTemplateId", id.as_str()), ("LaunchTemplateVersion.1", "1")];
    let body = sim.ok("DescribeLaunchTemplateVersions", &ask).await;
    assert_eq!(text(&body, "imageId"), SSM);
    assert_eq!(text(&body, "userData"), "aGVsbG8=");
    assert_eq!(texts(&body, "interfaceType"), ["efa-only"]);
    let ask = [ask[0], ask[1], ("ResolveAlias", "true")];
    let body = sim.ok("DescribeLaunchTemplateVersions", &ask).await;
    let image = text(&body, "imageId");
    assert!(image.starts_with("ami-") && image.len() == 21, "{image}");
    let body = sim.ok("DescribeImages", &[("ImageId.1", image)]).await;
    assert_eq!(text(&body, "imageState"), "available");
    let ask = [ask[0], ("LaunchTemplateVersion.1", "2")];
    let refused = sim.refused("DescribeLaunchTemplateVersions", &ask).await;
    assert_eq!(refused.1, "InvalidLaunchTemplateId.VersionNotFound");
}
