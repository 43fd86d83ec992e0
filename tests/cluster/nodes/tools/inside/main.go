// Command inside is what runs in the containers of the tests: it tells what it sees of the GPUs, and waits to be ended.
//
// Called `pause` it tells nothing. Else it prints one line of JSON: its environment as far as it is about GPUs, and the device
// nodes under /dev whose names begin with nvidia or gputopo.
package main

import (
	"encoding/json"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
)

type view struct {
	Env     map[string]string `json:"env"`
	Devices []string          `json:"devices"`
}

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	if filepath.Base(os.Args[0]) != "pause" {
		json.NewEncoder(os.Stdout).Encode(look())
	}
	<-end
}

func look() view {
	seen := view{Env: map[string]string{}, Devices: []string{}}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "NVIDIA") || strings.HasPrefix(name, "CUDA") || strings.HasPrefix(name, "GPUTOPO") {
			seen.Env[name] = value
		}
	}
	for _, pattern := range []string{"/dev/nvidia*", "/dev/gputopo*"} {
		nodes, _ := filepath.Glob(pattern)
		seen.Devices = append(seen.Devices, nodes...)
	}
	sort.Strings(seen.Devices)
	return seen
}
