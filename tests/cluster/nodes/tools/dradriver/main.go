// Command dradriver stands in for NVIDIA's DRA driver on a node: it prepares every claim at once, and nothing is done for it.
//
// Usage: dradriver FOLDER NAME, with the kubelet's folder and the driver's name. The variables SERVER and TOKEN say where claims are
// read, as a driver does: the kubelet tells their names only. It publishes nothing; its test does.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// The kubelet asks for the devices' health where it is among the services, and before 1.37 everywhere.
const healthService = "v1.DRAResourceHealth"

type driver struct {
	dra.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer
	name, endpoint string
	api            *http.Client
}

type claim struct {
	Status struct {
		Allocation struct {
			Devices struct {
				Results []struct{ Request, Driver, Pool, Device string }
			}
		}
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: dradriver FOLDER NAME")
		os.Exit(2)
	}
	folder, name := os.Args[1], os.Args[2]
	endpoint := filepath.Join(folder, "plugins", name, "dra.sock")
	insecure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	served := &driver{name: name, endpoint: endpoint, api: &http.Client{Transport: insecure}}
	// The kubelet prepares nothing before it is connected, and then asks for the devices' health, which is not served here.
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		fmt.Println("connected")
		return status.Error(codes.Unimplemented, "only claims are served")
	}))
	dra.RegisterDRAPluginServer(server, served)
	registration.RegisterRegistrationServer(server, served)
	// The kubelet finds the second one by itself, and asks there for the first.
	for _, socket := range []string{filepath.Join(folder, "plugins_registry", name+"-reg.sock"), endpoint} {
		if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
			fail(err)
		}
		listener, err := net.Listen("unix", socket)
		if err != nil {
			fail(err)
		}
		go func() { fail(server.Serve(listener)) }()
	}
	select {}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "dradriver:", err)
	os.Exit(1)
}

func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	versions := []string{dra.DRAPluginService, healthService}
	return &registration.PluginInfo{Type: registration.DRAPlugin, Name: d.name, Endpoint: d.endpoint, SupportedVersions: versions}, nil
}

func (d *driver) NotifyRegistrationStatus(
	_ context.Context, answer *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !answer.PluginRegistered {
		fail(fmt.Errorf("the kubelet refused: %s", answer.Error))
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driver) NodePrepareResources(
	_ context.Context, request *dra.NodePrepareResourcesRequest,
) (*dra.NodePrepareResourcesResponse, error) {
	prepared := map[string]*dra.NodePrepareResourceResponse{}
	for _, asked := range request.Claims {
		prepared[asked.Uid] = d.prepare(asked)
	}
	return &dra.NodePrepareResourcesResponse{Claims: prepared}, nil
}

func (d *driver) prepare(asked *dra.Claim) *dra.NodePrepareResourceResponse {
	found, err := d.read(asked)
	if err != nil {
		return &dra.NodePrepareResourceResponse{Error: err.Error()}
	}
	answer := &dra.NodePrepareResourceResponse{}
	for _, result := range found.Status.Allocation.Devices.Results {
		if result.Driver == d.name {
			device := &dra.Device{RequestNames: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device}
			answer.Devices = append(answer.Devices, device)
		}
	}
	return answer
}

func (d *driver) read(asked *dra.Claim) (*claim, error) {
	path := fmt.Sprintf("/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s", asked.Namespace, asked.Name)
	request, err := http.NewRequest(http.MethodGet, os.Getenv("SERVER")+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("TOKEN"))
	response, err := d.api.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("claim %s: %s", asked.Name, response.Status)
	}
	found := &claim{}
	return found, json.NewDecoder(response.Body).Decode(found)
}

func (d *driver) NodeUnprepareResources(
	_ context.Context, request *dra.NodeUnprepareResourcesRequest,
) (*dra.NodeUnprepareResourcesResponse, error) {
	ended := map[string]*dra.NodeUnprepareResourceResponse{}
	for _, asked := range request.Claims {
		ended[asked.Uid] = &dra.NodeUnprepareResourceResponse{}
	}
	return &dra.NodeUnprepareResourcesResponse{Claims: ended}, nil
}
