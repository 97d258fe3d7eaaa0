//! End to end: the real kube-apiserver, kube-scheduler, controller-manager, etcd and kwok, the shipped manifests, and
//! the `muster` binary as processes.

mod cloud;
mod fits;
mod support;

mod buying;
mod crash;
mod existing_nodes;
