//! End to end: the real kube-apiserver, kube-scheduler, controller-manager, etcd and kwok, the shipped manifests, and
//! the `muster` binary as processes.

mod cloud;
mod fits;
mod support;

mod bad_input;
mod buying;
mod crash;
mod demo;
mod existing_nodes;
