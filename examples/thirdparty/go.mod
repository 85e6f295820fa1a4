module example.com/thirdparty

go 1.26.0

require (
	github.com/chorus-comms/chorus v0.0.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/ebitengine/purego v0.11.3 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/chorus-comms/chorus => ../..
