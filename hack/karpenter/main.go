// Command karpenter-peer gives Karpenter's own scheduler the pods and instance types of one problem, and reports what it
// took and what it would launch. `make bench` runs it beside Muster's planner.
//
// It reads a problem as JSON from stdin and writes one line of JSON to stdout. The clock covers what a provisioning loop of
// Karpenter does for every batch of pods, between the decoded objects and the node claims: the topology, the scheduler and
// `Solve`. There are no nodes and no DaemonSets. Source: sigs.k8s.io/karpenter, pkg/controllers/provisioning.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
)

// Amounts of resources: millicores, bytes, pods.
type Amounts struct {
	CPU    int64 `json:"cpu"`
	Memory int64 `json:"memory"`
	Pods   int64 `json:"pods"`
}

// Type is an instance type with its offerings.
type Type struct {
	Name        string     `json:"name"`
	Capacity    Amounts    `json:"capacity"`
	Allocatable Amounts    `json:"allocatable"`
	Offerings   []Offering `json:"offerings"`
}

// Offering is one zone and capacity type, in millionths of a dollar per hour.
type Offering struct {
	Zone         string `json:"zone"`
	CapacityType string `json:"capacityType"`
	Price        uint64 `json:"price"`
}

// Rule keeps a pod away from others or draws it to them: `spread`, `affinity` or `antiAffinity` over a topology key, among
// pods with one label.
type Rule struct {
	Kind  string `json:"kind"`
	Key   string `json:"key"`
	Label string `json:"label"`
	Value string `json:"value"`
}

// Pod is one pod of the namespace `default`.
type Pod struct {
	Requests Amounts           `json:"requests"`
	Labels   map[string]string `json:"labels"`
	Rules    []Rule            `json:"rules"`
}

// Problem is what stdin holds.
type Problem struct {
	Types []Type `json:"types"`
	Pods  []Pod  `json:"pods"`
}

// Answer is what stdout gets. Times in nanoseconds, dollars in millionths per hour.
type Answer struct {
	Wall     int64  `json:"wall"`
	CPU      int64  `json:"cpu"`
	Solve    int64  `json:"solve"`
	Nodes    int    `json:"nodes"`
	Unplaced int    `json:"unplaced"`
	Cost     uint64 `json:"cost"`
	First    string `json:"firstError,omitempty"`
	Cores    int    `json:"cores"`
}

const pool = "default"

func main() {
	var problem Problem
	if err := json.NewDecoder(os.Stdin).Decode(&problem); err != nil {
		fail(fmt.Errorf("stdin: %w", err))
	}
	answer, err := solve(problem)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "karpenter-peer:", err)
	os.Exit(1)
}

func solve(problem Problem) (*Answer, error) {
	ctx := options.ToContext(context.Background(), &options.Options{
		PreferencePolicy:  options.PreferencePolicyRespect,
		MinValuesPolicy:   options.MinValuesPolicyStrict,
		IgnoreDRARequests: true,
	})
	scheme := k8sruntime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	client := fake.NewClientBuilder().WithScheme(scheme).Build()
	cluster := state.NewCluster(clock.RealClock{}, client, provider{})
	pods := make([]*corev1.Pod, 0, len(problem.Pods))
	for number, pod := range problem.Pods {
		pods = append(pods, podOf(number, pod))
	}
	instanceTypes := map[string][]*cloudprovider.InstanceType{}
	for _, one := range problem.Types {
		instanceTypes[pool] = append(instanceTypes[pool], typeOf(one))
	}
	pools := []*v1.NodePool{nodePool()}
	recorder := events.NewRecorder(&record.FakeRecorder{})

	start, startCPU := time.Now(), cpu()
	topology, err := scheduling.NewTopology(ctx, client, cluster, nil, pools, instanceTypes, pods)
	if err != nil {
		return nil, err
	}
	scheduler := scheduling.NewScheduler(ctx, client, pools, cluster, nil, topology, instanceTypes, nil, recorder,
		clock.RealClock{}, nil, nil, scheduling.NumConcurrentReconciles(runtime.GOMAXPROCS(0)))
	solving := time.Now()
	results, err := scheduler.Solve(ctx, pods)
	if err != nil {
		return nil, err
	}
	answer := &Answer{
		Wall:     time.Since(start).Nanoseconds(),
		CPU:      cpu() - startCPU,
		Solve:    time.Since(solving).Nanoseconds(),
		Nodes:    len(results.NewNodeClaims),
		Unplaced: len(results.PodErrors),
		Cores:    runtime.GOMAXPROCS(0),
	}
	for _, err := range results.PodErrors {
		answer.First = err.Error()
		break
	}
	for _, claim := range results.NewNodeClaims {
		cheapest := math.Inf(1)
		for _, one := range claim.InstanceTypeOptions {
			for _, offering := range one.Offerings.Available().Compatible(claim.Requirements) {
				cheapest = math.Min(cheapest, offering.Price)
			}
		}
		if math.IsInf(cheapest, 1) {
			return nil, fmt.Errorf("a node claim has no offering")
		}
		answer.Cost += uint64(math.Round(cheapest * 1e6))
	}
	return answer, nil
}

// cpu is what this process has spent on all cores, in nanoseconds.
func cpu() int64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func list(amounts Amounts) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(amounts.CPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(amounts.Memory, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(amounts.Pods, resource.DecimalSI),
	}
}

func typeOf(one Type) *cloudprovider.InstanceType {
	var zones, capacityTypes []string
	var offerings cloudprovider.Offerings
	for _, offering := range one.Offerings {
		zones, capacityTypes = append(zones, offering.Zone), append(capacityTypes, offering.CapacityType)
		offerings = append(offerings, &cloudprovider.Offering{
			Requirements: requirements.NewLabelRequirements(map[string]string{
				v1.CapacityTypeLabelKey:  offering.CapacityType,
				corev1.LabelTopologyZone: offering.Zone,
			}),
			Price:     float64(offering.Price) / 1e6,
			Available: true,
		})
	}
	in := func(key string, values ...string) *requirements.Requirement {
		return requirements.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
	}
	return &cloudprovider.InstanceType{
		Name: one.Name,
		Requirements: requirements.NewRequirements(
			in(corev1.LabelInstanceTypeStable, one.Name),
			in(corev1.LabelArchStable, "amd64"),
			in(corev1.LabelOSStable, "linux"),
			in(corev1.LabelTopologyZone, zones...),
			in(v1.CapacityTypeLabelKey, capacityTypes...),
		),
		Offerings: offerings,
		Capacity:  list(one.Capacity),
		Overhead: &cloudprovider.InstanceTypeOverhead{KubeReserved: list(Amounts{
			CPU:    one.Capacity.CPU - one.Allocatable.CPU,
			Memory: one.Capacity.Memory - one.Allocatable.Memory,
			Pods:   one.Capacity.Pods - one.Allocatable.Pods,
		})},
	}
}

func nodePool() *v1.NodePool {
	return &v1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: pool, UID: types.UID(pool)},
		Spec: v1.NodePoolSpec{Template: v1.NodeClaimTemplate{Spec: v1.NodeClaimTemplateSpec{
			NodeClassRef: &v1.NodeClassReference{Group: "karpenter.test.sh", Kind: "TestNodeClass", Name: pool},
			Requirements: []v1.NodeSelectorRequirementWithMinValues{{
				Key:      v1.CapacityTypeLabelKey,
				Operator: corev1.NodeSelectorOpIn,
				Values:   []string{v1.CapacityTypeSpot, v1.CapacityTypeOnDemand},
			}},
		}}},
	}
}

func podOf(number int, pod Pod) *corev1.Pod {
	name := fmt.Sprintf("pod-%06d", number)
	requests := list(pod.Requests)
	delete(requests, corev1.ResourcePods)
	made := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: types.UID(name), Labels: pod.Labels,
			CreationTimestamp: metav1.NewTime(time.Unix(int64(number), 0)),
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "image", Resources: corev1.ResourceRequirements{Requests: requests},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}},
	}
	for _, rule := range pod.Rules {
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{rule.Label: rule.Value}}
		term := corev1.PodAffinityTerm{LabelSelector: selector, TopologyKey: rule.Key}
		switch rule.Kind {
		case "spread":
			made.Spec.TopologySpreadConstraints = append(made.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
				MaxSkew: 1, TopologyKey: rule.Key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector,
			})
		case "affinity":
			affinity(made).PodAffinity = &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
			}
		case "antiAffinity":
			affinity(made).PodAntiAffinity = &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
			}
		default:
			fail(fmt.Errorf("pod %d: unknown rule %q", number, rule.Kind))
		}
	}
	return made
}

func affinity(pod *corev1.Pod) *corev1.Affinity {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	return pod.Spec.Affinity
}

// provider is asked for nothing: the instance types are handed over.
type provider struct{ cloudprovider.CloudProvider }

func (provider) GetSupportedNodeClasses() []status.Object { return nil }
