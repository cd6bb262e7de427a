// Command etcd is etcd as it is published, built as a main module of its own: its modules refuse `go install`.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
