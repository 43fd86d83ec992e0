// Command ask puts questions to the sockets of a node and prints the answers as JSON.
//
//	ask resources SOCKET    what the kubelet says who holds which device (PodResources List)
//	ask allocatable SOCKET  the ids of all healthy devices, held or not (PodResources GetAllocatableResources)
//	ask claims SOCKET       what the kubelet says which container has which device by a ResourceClaim (PodResources List)
//	ask prefer SOCKET       reads {"available": [...], "must_include": [...], "size": 2} line by line and answers each with what
//	                        the device plugin would choose: {"ids": [...]} or {"error": "..."}
//
// It never calls ListAndWatch: NVIDIA's plugin tells each change of health to one stream only.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	resources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

type holding struct {
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	Container string   `json:"container"`
	Resource  string   `json:"resource"`
	IDs       []string `json:"ids"`
}

type claimed struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Claim     string `json:"claim"`
	Driver    string `json:"driver"`
	Device    string `json:"device"`
}

type request struct {
	Available   []string `json:"available"`
	MustInclude []string `json:"must_include"`
	Size        int32    `json:"size"`
}

type answer struct {
	IDs   []string `json:"ids"`
	Error string   `json:"error,omitempty"`
}

func main() {
	questions := map[string]func(*grpc.ClientConn) error{
		"resources": printResources, "claims": printClaims, "allocatable": printAllocatable, "prefer": answerRequests,
	}
	if len(os.Args) != 3 || questions[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: ask resources|claims|allocatable|prefer SOCKET")
		os.Exit(2)
	}
	if err := ask(questions[os.Args[1]], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "ask:", err)
		os.Exit(1)
	}
}

func ask(question func(*grpc.ClientConn) error, socket string) error {
	absolute, err := filepath.Abs(socket)
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient("unix://"+absolute, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	return question(connection)
}

func printResources(connection *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list, err := resources.NewPodResourcesListerClient(connection).List(ctx, &resources.ListPodResourcesRequest{})
	if err != nil {
		return err
	}
	held := []holding{}
	for _, pod := range list.PodResources {
		for _, container := range pod.Containers {
			for _, devices := range container.Devices {
				held = append(held, holding{pod.Namespace, pod.Name, container.Name, devices.ResourceName, devices.DeviceIds})
			}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(held)
}

func printClaims(connection *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	list, err := resources.NewPodResourcesListerClient(connection).List(ctx, &resources.ListPodResourcesRequest{})
	if err != nil {
		return err
	}
	held := []claimed{}
	for _, pod := range list.PodResources {
		for _, container := range pod.Containers {
			for _, resource := range container.DynamicResources {
				for _, device := range resource.ClaimResources {
					held = append(held, claimed{pod.Name, container.Name, resource.ClaimName, device.DriverName, device.DeviceName})
				}
			}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(held)
}

func printAllocatable(connection *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client := resources.NewPodResourcesListerClient(connection)
	all, err := client.GetAllocatableResources(ctx, &resources.AllocatableResourcesRequest{})
	if err != nil {
		return err
	}
	near := map[string][]int64{}
	for _, devices := range all.Devices {
		for _, id := range devices.DeviceIds {
			near[id] = append([]int64{}, near[id]...)
			for _, node := range devices.Topology.GetNodes() {
				near[id] = append(near[id], node.ID)
			}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(near)
}

func answerRequests(connection *grpc.ClientConn) error {
	client, out := plugin.NewDevicePluginClient(connection), json.NewEncoder(os.Stdout)
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var asked request
		if err := in.Decode(&asked); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := out.Encode(prefer(client, asked)); err != nil {
			return err
		}
	}
}

func prefer(client plugin.DevicePluginClient, asked request) answer {
	response, err := client.GetPreferredAllocation(context.Background(), &plugin.PreferredAllocationRequest{
		ContainerRequests: []*plugin.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs:   asked.Available,
			MustIncludeDeviceIDs: asked.MustInclude,
			AllocationSize:       asked.Size,
		}},
	})
	if err != nil {
		return answer{IDs: []string{}, Error: err.Error()}
	}
	return answer{IDs: response.ContainerResponses[0].DeviceIDs}
}
