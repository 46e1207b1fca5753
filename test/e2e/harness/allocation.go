package harness

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Share is what one container is given, as tessera.dev/allocation and its keys say it.
type Share struct {
	Container      string
	GPUs           []string // UUIDs
	Request, Limit int64    // MiB
	Mode           string   // "" is time-slicing; exclusive is whole GPUs, without amounts
	Portion        string   // "" is none
	MIG            []string // GPU-<uuid>/<profile>:<start>, in place of GPUs
}

// Allocation is what the extender writes for that node and these containers (state/CONTRACT.md).
func Allocation(node string, shares ...Share) map[string]string {
	a := map[string]string{}
	var list []string
	for _, s := range shares {
		key, letters := ContainerPrefix+s.Container, "drlm"
		if len(s.MIG) > 0 {
			letters, s.Mode = "rlmg", "mig"
			a[TesseraContainers+s.Container+".mig-placement"] = strings.Join(s.MIG, ",")
		} else {
			a[key+".gpus.devices"] = strings.Join(s.GPUs, ",")
		}
		if s.Mode == "exclusive" {
			letters = "dm"
		} else {
			a[key+".gpu-memory.request"] = fmt.Sprintf("%dMi", s.Request)
			a[key+".gpu-memory.limit"] = fmt.Sprintf("%dMi", s.Limit)
		}
		a[key+".gpu-compute.mode"] = s.Mode
		if s.Mode == "" {
			a[key+".gpu-compute.mode"] = "time-slicing"
		}
		if s.Portion != "" {
			a[key+".gpu-compute.portion"] = s.Portion
			letters += "p"
		}
		list = append(list, s.Container+"="+letters)
	}
	joined := strings.Join(list, ",")
	a[AllocationKey] = "v1;" + node + ";" + allocationDigest(node, joined, a) + ";" + joined
	return a
}

// allocationDigest is a hash over version, node, list and the sorted keys with their values, each with its
// length before it: FNV-1a with the mixing of MurmurHash3's end, the last result being the next seed.
func allocationDigest(node, list string, a map[string]string) string {
	h := digestPiece(0, "v1")
	h = digestPiece(h, node)
	h = digestPiece(h, list)
	for _, k := range slices.Sorted(maps.Keys(a)) {
		h = digestPiece(digestPiece(h, k), a[k])
	}
	return fmt.Sprintf("%016x", h)
}

func digestPiece(h uint64, piece string) uint64 {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(piece)))
	return digestBytes([]byte(piece), digestBytes(length, h))
}

func digestBytes(data []byte, seed uint64) uint64 {
	h := 0xcbf29ce484222325 ^ seed
	for _, b := range data {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
