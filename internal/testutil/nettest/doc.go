// Package nettest is what tests, and programs that test such as chorus chaos, do to the network:
//
//   - free ports ([FreePort]);
//   - links that fall silent ([Blackhole]);
//   - clients that disconnect while they're being answered ([ResetStoreClient]);
//   - names that resolve as the test wants ([Resolver]).
package nettest
