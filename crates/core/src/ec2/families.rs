//! User data by the family of an image.

use super::bootstrap::{Bootstrap, UserDataError, checked, user_data_al2023};
use super::bottlerocket::user_data_bottlerocket;
use super::image::Family;

/// User data of a node of this family. Errors: [`UserDataError`].
pub fn user_data(family: Family, bootstrap: &Bootstrap) -> Result<String, UserDataError> {
    match family {
        Family::Al2023 => user_data_al2023(bootstrap),
        Family::Bottlerocket => user_data_bottlerocket(bootstrap),
        // Passed as it is: such an image registers labels and taints itself.
        Family::Custom => checked(bootstrap, bootstrap.user_data.clone()),
    }
}
