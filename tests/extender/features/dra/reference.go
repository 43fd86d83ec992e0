// Answers cases.json with Kubernetes' own code for CEL selectors and allocations of devices, for reference.json.
//
// Run it in a folder with the go.mod and go.sum of tests/cluster/kube:
//
//	go run . < cases.json > reference.json
package main

import (
	"context"
	"encoding/json"
	"os"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type selectorCase struct {
	Expression string
	Driver     string
	Device     resourceapi.Device
}

type allocationCase struct {
	Node   string
	Class  resourceapi.DeviceClass
	Claims []*resourceapi.ResourceClaim
	Slices []*resourceapi.ResourceSlice
	Taken  []struct{ Driver, Pool, Device string }
}

type cases struct {
	Selectors   []selectorCase
	Allocations []allocationCase
}

type answers struct {
	Selectors   []string                         `json:"selectors"`
	Allocations [][]resourceapi.AllocationResult `json:"allocations"`
}

type classes struct{ class *resourceapi.DeviceClass }

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{c.class}, nil
}

func (c classes) Get(string) (*resourceapi.DeviceClass, error) { return c.class, nil }

func answer(one selectorCase) string {
	compiled := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).CompileCELExpression(one.Expression, cel.Options{})
	if compiled.Error != nil {
		return "unreadable"
	}
	matches, _, err := compiled.DeviceMatches(context.Background(), cel.Device{Driver: one.Driver, Attributes: one.Device.Attributes, Capacity: one.Device.Capacity})
	switch {
	case err != nil:
		return "error"
	case matches:
		return "true"
	}
	return "false"
}

func allocate(one allocationCase) []resourceapi.AllocationResult {
	taken := sets.New[structured.DeviceID]()
	for _, device := range one.Taken {
		taken.Insert(structured.MakeDeviceID(device.Driver, device.Pool, device.Device))
	}
	features := structured.Features{ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true}
	state := structured.AllocatedState{AllocatedDevices: taken, AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](), AggregatedCapacity: structured.NewConsumedCapacityCollection()}
	allocator, err := structured.NewAllocator(context.Background(), features, state, classes{&one.Class}, one.Slices, cel.NewCache(100, cel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		panic(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: one.Node}}
	result, err := allocator.Allocate(context.Background(), node, one.Claims)
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		return nil
	}
	return result
}

func main() {
	var read cases
	if err := json.NewDecoder(os.Stdin).Decode(&read); err != nil {
		panic(err)
	}
	var written answers
	for _, one := range read.Selectors {
		written.Selectors = append(written.Selectors, answer(one))
	}
	for _, one := range read.Allocations {
		written.Allocations = append(written.Allocations, allocate(one))
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(written); err != nil {
		panic(err)
	}
}
