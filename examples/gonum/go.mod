module example.com/gonum

go 1.26.0

require github.com/chorus-comms/chorus v0.0.0

require (
	golang.org/x/sys v0.49.0 // indirect
	gonum.org/v1/gonum v0.17.0
)

replace github.com/chorus-comms/chorus => ../..
