// Package wire is the small parts that several protocols of Chorus share: how many bytes of an announced length are
// believed ([ReadN]), checksums of what ranks compare ([HashAdd], [HashInts]), and lists of ranks in messages ([RankList],
// [NamedRanks]).
package wire
