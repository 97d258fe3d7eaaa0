//! End to end: the real kube-apiserver, kube-scheduler, controller-manager, etcd and kwok, the shipped manifests, and
//! the `muster` binary as processes.

mod assumptions;
mod bad_input;
mod barrier;
mod ceilings;
mod chaos;
mod cloud;
mod conventions;
mod crash;
mod default_scheduler;
mod demo;
mod denied;
mod existing_nodes;
mod fits;
mod ha;
mod install;
mod kueue;
mod native;
mod now_or_new;
mod permissions;
mod protocol_chaos;
mod provisioning;
mod proxy;
mod races;
mod recorder;
mod recording;
mod repair;
mod restart;
mod scale;
mod scenarios;
mod secure;
mod support;
mod uninstall;
mod upgrade;
mod volumes;
mod ways;
