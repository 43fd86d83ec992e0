// Command dradriver stands in for NVIDIA's DRA driver on a node: it prepares every claim at once, as a CDI device of each GPU.
//
// Usage: dradriver FOLDER NAME DEVICE=UUID..., with the kubelet's folder and the driver's name. The variables SERVER and TOKEN say
// where claims are read, as a driver does: the kubelet tells their names only. It publishes nothing; its test does. Like NVIDIA's it
// prepares no device for two claims. Where RECORD names a file, it takes a line for each claim that is prepared, refused or ended.
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
	"slices"
	"strings"
	"sync"

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
	uuids          map[string]string // by device
	mutex          sync.Mutex
	prepared       map[string][]string // claim to its devices, but for those of admin access
	record         *json.Encoder       // nil: nowhere
}

// line is one line of the record.
type line struct {
	What    string   `json:"what"`
	Claim   string   `json:"claim"`
	Devices []string `json:"devices"`
}

type claim struct {
	Status struct {
		Allocation struct {
			Devices struct {
				Results []struct {
					Request, Driver, Pool, Device string
					AdminAccess                   bool
				}
			}
		}
	}
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: dradriver FOLDER NAME DEVICE=UUID...")
		os.Exit(2)
	}
	folder, name := os.Args[1], os.Args[2]
	endpoint := filepath.Join(folder, "plugins", name, "dra.sock")
	insecure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	served := &driver{
		name: name, endpoint: endpoint, api: &http.Client{Transport: insecure}, uuids: map[string]string{}, prepared: map[string][]string{},
	}
	for _, published := range os.Args[3:] {
		device, uuid, _ := strings.Cut(published, "=")
		served.uuids[device] = uuid
	}
	if path := os.Getenv("RECORD"); path != "" {
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
		if err != nil {
			fail(err)
		}
		served.record = json.NewEncoder(file)
	}
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
	answer, used := &dra.NodePrepareResourceResponse{}, []string{}
	for _, result := range found.Status.Allocation.Devices.Results {
		if result.Driver != d.name {
			continue
		}
		uuid, isHere := d.uuids[result.Device]
		if !isHere {
			return &dra.NodePrepareResourceResponse{Error: "no such device: " + result.Device}
		}
		answer.Devices = append(answer.Devices, &dra.Device{
			RequestNames: []string{result.Request},
			PoolName:     result.Pool,
			DeviceName:   result.Device,
			CdiDeviceIds: []string{"nvidia.com/gpu=" + uuid},
		})
		if !result.AdminAccess {
			used = append(used, result.Device)
		}
	}
	if err := d.take(asked.Uid, used); err != nil {
		return &dra.NodePrepareResourceResponse{Error: err.Error()}
	}
	return answer
}

// take prepares devices for a claim, unless another claim has one of them.
func (d *driver) take(claim string, devices []string) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for holder, held := range d.prepared {
		if holder != claim && slices.ContainsFunc(devices, func(device string) bool { return slices.Contains(held, device) }) {
			d.note(line{"refused", claim, devices})
			return fmt.Errorf("claim %s has one of %v", holder, devices)
		}
	}
	d.prepared[claim] = devices
	d.note(line{"prepared", claim, devices})
	return nil
}

func (d *driver) note(event line) {
	if d.record == nil {
		return
	}
	if err := d.record.Encode(event); err != nil {
		fail(err)
	}
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
	d.mutex.Lock()
	defer d.mutex.Unlock()
	ended := map[string]*dra.NodeUnprepareResourceResponse{}
	for _, asked := range request.Claims {
		if devices, isPrepared := d.prepared[asked.Uid]; isPrepared {
			delete(d.prepared, asked.Uid)
			d.note(line{"ended", asked.Uid, devices})
		}
		ended[asked.Uid] = &dra.NodeUnprepareResourceResponse{}
	}
	return &dra.NodeUnprepareResourcesResponse{Claims: ended}, nil
}
