// Command fakecri is a container runtime that starts nothing: a kubelet is content with it, and thirty of them fit on a laptop.
//
// Usage: fakecri SOCKET RECORD. Each container that is started adds one line of JSON to the file RECORD: what the kubelet asked
// the runtime to inject.
package main

import (
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/fake"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fakecri SOCKET RECORD")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "fakecri:", err)
		os.Exit(1)
	}
}

func serve(socket, record string) error {
	file, err := os.OpenFile(record, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	runtime := newRuntime(fake.NewFakeRemoteRuntime(), file)
	// The package's own server takes no other methods than its own.
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, runtime)
	cri.RegisterImageServiceServer(server, runtime)
	return server.Serve(listener)
}
