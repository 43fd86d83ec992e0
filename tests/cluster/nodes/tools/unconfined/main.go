// Command unconfined stands before runc and changes two things in what is to be created: it takes out the seccomp profile, and
// moves the container's cgroup below the one named by the variable CGROUP, where it can be found again.
//
// A runc that is built from Go modules alone knows no seccomp: that would need the headers of a C library. The program is named
// by the variable RUNC. Without cgroups per pod a kubelet leaves it to the runtime where cgroups are.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	var cgroup string
	if err := json.Unmarshal(linux["cgroupsPath"], &cgroup); err != nil {
		return err
	}
	if linux["cgroupsPath"], err = json.Marshal(filepath.Join(os.Getenv("CGROUP"), filepath.Base(cgroup))); err != nil {
		return err
	}
	if config["linux"], err = json.Marshal(linux); err != nil {
		return err
	}
	if text, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}
