// Command inside is what runs in the containers of the tests: it tells what it sees of the GPUs, and waits to be ended.
//
// Called `pause` it tells nothing. Else it prints one line of JSON: its environment as far as it is about GPUs, and the device
// nodes under /dev whose names begin with nvidia. For people it adds how these GPUs are joined, if a file tells it.
package main

import (
	"encoding/json"
	"fmt"
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
		seen := look()
		json.NewEncoder(os.Stdout).Encode(seen)
		for _, line := range joints(seen.Devices) {
			fmt.Println(line)
		}
	}
	<-end
}

func look() view {
	seen := view{Env: map[string]string{}, Devices: []string{}}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "NVIDIA") || strings.HasPrefix(name, "CUDA") {
			seen.Env[name] = value
		}
	}
	nodes, _ := filepath.Glob("/dev/nvidia*")
	seen.Devices = append(seen.Devices, nodes...)
	sort.Strings(seen.Devices)
	return seen
}

// joints picks from the lines `0 3 NV2` of the file those whose GPUs are both here.
func joints(devices []string) []string {
	here := map[string]bool{}
	for _, device := range devices {
		here[strings.TrimPrefix(device, "/dev/nvidia")] = true
	}
	text, _ := os.ReadFile("/run/gputopo/links")
	var lines []string
	for _, line := range strings.Split(string(text), "\n") {
		words := strings.Fields(line)
		if len(words) == 3 && here[words[0]] && here[words[1]] {
			lines = append(lines, fmt.Sprintf("GPU%s and GPU%s: %s", words[0], words[1], words[2]))
		}
	}
	return lines
}
