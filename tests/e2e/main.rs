//! End to end: the real kube-apiserver, kube-scheduler, controller-manager, etcd and kwok, the shipped manifests, and
//! the `muster` binary as processes.

mod bad_input;
mod buying;
mod cloud;
mod conventions;
mod crash;
mod demo;
mod existing_nodes;
mod fits;
mod kueue;
mod repair;
mod support;
