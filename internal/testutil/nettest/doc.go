// Package nettest is what tests, and programs that test such as chorus chaos, do to TCP connections: free ports
// ([FreePort]), links that fall silent ([Blackhole]), and clients that disconnect while they're being answered
// ([ResetStoreClient]).
package nettest
