package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/fake"
)

// runtime adds to the published fake what a kubelet or a test would miss in it.
type runtime struct {
	*fake.RemoteRuntime
	mutex   sync.Mutex
	created map[string]container // by container id
	record  *json.Encoder
}

// container is what was asked for, and where its log would be.
type container struct {
	started started
	logPath string
}

// started is one line of the record.
type started struct {
	Time        float64           `json:"time"`
	Namespace   string            `json:"namespace"`
	Pod         string            `json:"pod"`
	UID         string            `json:"uid"`
	Container   string            `json:"container"`
	Attempt     uint32            `json:"attempt"`
	Env         [][2]string       `json:"env"` // in the order in which a later one wins
	CDIDevices  []string          `json:"cdi_devices"`
	Devices     []string          `json:"devices"` // paths inside the container
	Mounts      []string          `json:"mounts"`
	Annotations map[string]string `json:"annotations"`
}

func newRuntime(published *fake.RemoteRuntime, record io.Writer) *runtime {
	published.RuntimeService.FakeStatus = &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: true},
		{Type: cri.NetworkReady, Status: true},
	}}
	// An image of no size is one that is not there, and then no container starts.
	published.ImageService.SetFakeImageSize(1 << 20)
	return &runtime{RemoteRuntime: published, created: map[string]container{}, record: json.NewEncoder(record)}
}

func (r *runtime) CreateContainer(ctx context.Context, request *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	answer, err := r.RemoteRuntime.CreateContainer(ctx, request)
	if err != nil {
		return nil, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.created[answer.ContainerId] = container{
		started: asked(request),
		logPath: filepath.Join(request.SandboxConfig.GetLogDirectory(), request.Config.GetLogPath()),
	}
	return answer, nil
}

func (r *runtime) StartContainer(ctx context.Context, request *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	answer, err := r.RemoteRuntime.StartContainer(ctx, request)
	if err != nil {
		return nil, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	// The kubelet has made the folder, and looks after the file.
	if log := r.created[request.ContainerId].logPath; os.WriteFile(log, nil, 0o640) != nil {
		return nil, fmt.Errorf("no log at %s", log)
	}
	line := r.created[request.ContainerId].started
	line.Time = float64(time.Now().UnixMicro()) / 1e6
	return answer, r.record.Encode(line)
}

func (r *runtime) RemoveContainer(ctx context.Context, request *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	r.mutex.Lock()
	delete(r.created, request.ContainerId)
	r.mutex.Unlock()
	return r.RemoteRuntime.RemoveContainer(ctx, request)
}

// ContainerStatus names the log: a kubelet that is told of none removes, with the container, all files of its working directory.
func (r *runtime) ContainerStatus(ctx context.Context, request *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	answer, err := r.RemoteRuntime.ContainerStatus(ctx, request)
	if err != nil {
		return nil, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	answer.Status.LogPath = r.created[request.ContainerId].logPath
	return answer, nil
}

// RuntimeConfig saves the kubelet a fallback that a later release drops.
func (r *runtime) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_CGROUPFS}}, nil
}

// ImageFsInfo gives the eviction manager a file system to look at.
func (r *runtime) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	root := []*cri.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &cri.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes:  &cri.UInt64Value{},
		InodesUsed: &cri.UInt64Value{},
	}}
	return &cri.ImageFsInfoResponse{ImageFilesystems: root, ContainerFilesystems: root}, nil
}

func asked(request *cri.CreateContainerRequest) started {
	config, pod := request.Config, request.SandboxConfig.GetMetadata()
	line := started{
		Namespace:   pod.GetNamespace(),
		Pod:         pod.GetName(),
		UID:         pod.GetUid(),
		Container:   config.GetMetadata().GetName(),
		Attempt:     config.GetMetadata().GetAttempt(),
		Env:         [][2]string{},
		CDIDevices:  []string{},
		Devices:     []string{},
		Mounts:      []string{},
		Annotations: config.GetAnnotations(),
	}
	for _, env := range config.GetEnvs() {
		line.Env = append(line.Env, [2]string{env.GetKey(), string(env.GetValue())})
	}
	for _, device := range config.GetCDIDevices() {
		line.CDIDevices = append(line.CDIDevices, device.GetName())
	}
	for _, device := range config.GetDevices() {
		line.Devices = append(line.Devices, device.GetContainerPath())
	}
	for _, mount := range config.GetMounts() {
		line.Mounts = append(line.Mounts, mount.GetContainerPath())
	}
	return line
}
