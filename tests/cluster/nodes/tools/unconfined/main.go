// Command unconfined stands before runc and changes three things in what is to be created: it takes out the seccomp profile,
// moves the container's cgroup below the one named by the variable CGROUP, where it can be found again, and mounts the driver's
// library into containers that ask for GPUs, as NVIDIA's container runtime does; the folder of the driver is named by DRIVER.
//
// A runc that is built from Go modules alone knows no seccomp: that would need the headers of a C library. The program is named
// by the variable RUNC. Without cgroups per pod a kubelet leaves it to the runtime where cgroups are; with them, it has put them
// there itself.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "unconfined:", err)
		os.Exit(1)
	}
}

func run() error {
	if at := slices.Index(os.Args, "--bundle"); at >= 0 && slices.Contains(os.Args, "create") {
		if err := adapt(filepath.Join(os.Args[at+1], "config.json")); err != nil {
			return err
		}
	}
	return syscall.Exec(os.Getenv("RUNC"), os.Args, os.Environ())
}

func adapt(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var config, linux map[string]json.RawMessage
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	if err := json.Unmarshal(config["linux"], &linux); err != nil {
		return err
	}
	delete(linux, "seccomp")
	if err := addDriver(config, os.Getenv("DRIVER")); err != nil {
		return err
	}
	var cgroup string
	if err := json.Unmarshal(linux["cgroupsPath"], &cgroup); err != nil {
		return err
	}
	if ours := os.Getenv("CGROUP"); !strings.HasPrefix(cgroup, ours+"/") {
		if linux["cgroupsPath"], err = json.Marshal(filepath.Join(ours, filepath.Base(cgroup))); err != nil {
			return err
		}
	}
	if config["linux"], err = json.Marshal(linux); err != nil {
		return err
	}
	if text, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

func addDriver(config map[string]json.RawMessage, driver string) error {
	var process map[string]json.RawMessage
	var env []string
	var mounts []any
	if err := json.Unmarshal(config["process"], &process); err != nil {
		return err
	}
	if err := json.Unmarshal(process["env"], &env); err != nil {
		return err
	}
	if err := json.Unmarshal(config["mounts"], &mounts); err != nil {
		return err
	}
	wants := func(variable string) bool {
		name, gpus, _ := strings.Cut(variable, "=")
		return name == "NVIDIA_VISIBLE_DEVICES" && gpus != "" && gpus != "void"
	}
	if !slices.ContainsFunc(env, wants) {
		return nil
	}
	mount := func(from, to string) map[string]any {
		return map[string]any{"source": from, "destination": to, "type": "bind", "options": []string{"rbind", "ro"}}
	}
	library := "libnvidia-ml.so.1"
	mounts = append(mounts, mount(filepath.Join(driver, library), "/usr/lib/"+library), mount(driver, "/run/driver"))
	env = append(env, "GPUTOPO_FAKE_NVML=/run/driver/machine.nvml")
	var err error
	if process["env"], err = json.Marshal(env); err != nil {
		return err
	}
	if config["process"], err = json.Marshal(process); err != nil {
		return err
	}
	config["mounts"], err = json.Marshal(mounts)
	return err
}
