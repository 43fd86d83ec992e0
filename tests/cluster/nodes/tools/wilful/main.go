// Command wilful is a device plugin with a mind of its own: which GPUs it hands out has nothing to do with any plan.
//
// Usage: wilful FOLDER RESOURCE ID[:NUMA]..., with the kubelet's device plugin folder. Of the free devices it prefers some at
// random. It registers anew whenever the kubelet has made its socket anew. Each question is added as a line to the file named by
// the variable RECORD, if there is one: `prefer available=8 must_include=0 size=2` or `allocate size=2`. It prints `listed` each time that
// a kubelet has connected and has the list.
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const lookEvery = 50 * time.Millisecond

type wilful struct {
	plugin.UnimplementedDevicePluginServer
	devices []*plugin.Device
	record  io.Writer
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: wilful FOLDER RESOURCE ID[:NUMA]...")
		os.Exit(2)
	}
	folder, resource := os.Args[1], os.Args[2]
	served := &wilful{devices: devices(os.Args[3:]), record: io.Discard}
	if name := os.Getenv("RECORD"); name != "" {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			fmt.Fprintln(os.Stderr, "wilful:", err)
			os.Exit(1)
		}
		served.record = file
	}
	for session := 0; ; session++ {
		before := identity(filepath.Join(folder, "kubelet.sock"))
		// A socket of its own for each session: the kubelet wipes the folder when it starts.
		name := fmt.Sprintf("wilful-%d-%d.sock", os.Getpid(), session)
		if err := serve(served, folder, name, resource, before); err != nil {
			fmt.Fprintln(os.Stderr, "wilful:", err)
		}
		time.Sleep(lookEvery)
	}
}

// serve registers and returns when the kubelet's socket is another one than `before`.
func serve(served *wilful, folder, name, resource, before string) error {
	listener, err := net.Listen("unix", filepath.Join(folder, name))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	plugin.RegisterDevicePluginServer(server, served)
	go server.Serve(listener)
	defer server.Stop()
	if err := register(folder, name, resource); err != nil {
		return err
	}
	for identity(filepath.Join(folder, "kubelet.sock")) == before {
		time.Sleep(lookEvery)
	}
	return nil
}

func register(folder, name, resource string) error {
	kubelet := "unix://" + filepath.Join(folder, "kubelet.sock")
	connection, err := grpc.NewClient(kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request := &plugin.RegisterRequest{Version: plugin.Version, Endpoint: name, ResourceName: resource}
	_, err = plugin.NewRegistrationClient(connection).Register(ctx, request)
	return err
}

// identity tells one socket from its successor, which may have the same inode.
func identity(socket string) string {
	info, err := os.Stat(socket)
	if err != nil {
		return ""
	}
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(stat.Ino, stat.Ctim)
}

func devices(words []string) []*plugin.Device {
	var all []*plugin.Device
	for _, word := range words {
		id, numa, known := strings.Cut(word, ":")
		device := &plugin.Device{ID: id, Health: plugin.Healthy}
		if node, err := strconv.ParseInt(numa, 10, 64); known && err == nil {
			device.Topology = &plugin.TopologyInfo{Nodes: []*plugin.NUMANode{{ID: node}}}
		}
		all = append(all, device)
	}
	return all
}

func (w *wilful) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (w *wilful) ListAndWatch(_ *plugin.Empty, stream grpc.ServerStreamingServer[plugin.ListAndWatchResponse]) error {
	if err := stream.Send(&plugin.ListAndWatchResponse{Devices: w.devices}); err != nil {
		return err
	}
	fmt.Println("listed")
	<-stream.Context().Done()
	return nil
}

func (w *wilful) GetPreferredAllocation(
	_ context.Context, request *plugin.PreferredAllocationRequest,
) (*plugin.PreferredAllocationResponse, error) {
	response := &plugin.PreferredAllocationResponse{}
	for _, asked := range request.ContainerRequests {
		fmt.Fprintf(w.record, "prefer available=%d must_include=%d size=%d\n",
			len(asked.AvailableDeviceIDs), len(asked.MustIncludeDeviceIDs), asked.AllocationSize)
		chosen := asked.MustIncludeDeviceIDs
		for _, at := range rand.Perm(len(asked.AvailableDeviceIDs)) {
			id := asked.AvailableDeviceIDs[at]
			if len(chosen) < int(asked.AllocationSize) && !contains(chosen, id) {
				chosen = append(chosen, id)
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, &plugin.ContainerPreferredAllocationResponse{DeviceIDs: chosen})
	}
	return response, nil
}

func (w *wilful) Allocate(_ context.Context, request *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	response := &plugin.AllocateResponse{}
	for _, asked := range request.ContainerRequests {
		fmt.Fprintf(w.record, "allocate size=%d\n", len(asked.DevicesIds))
		given := &plugin.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(asked.DevicesIds, ",")},
		}
		for _, id := range asked.DevicesIds {
			given.CdiDevices = append(given.CdiDevices, &plugin.CDIDevice{Name: "nvidia.com/gpu=" + id})
		}
		response.ContainerResponses = append(response.ContainerResponses, given)
	}
	return response, nil
}

func contains(ids []string, id string) bool {
	for _, other := range ids {
		if other == id {
			return true
		}
	}
	return false
}
