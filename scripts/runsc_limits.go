// What `build-runsc` adds to the package of gVisor that starts a sandbox, and calls from there.

package sandbox

import (
	"math"
	"runtime"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// ownLimits returns what the kernel inside is told of its processors, and lowers its memory to what the description says.
// As released gVisor reads both from a cgroup that it made; ours is another's, who starts it there (--ignore-cgroups).
// Nobody is held to it here: programs inside ask how much they may use.
func ownLimits(spec *specs.Spec, memory *uint64) []string {
	if spec.Linux == nil || spec.Linux.Resources == nil {
		return nil
	}
	if limit := spec.Linux.Resources.Memory; limit != nil && limit.Limit != nil && uint64(*limit.Limit) < *memory {
		*memory = uint64(*limit.Limit)
	}
	cpu := spec.Linux.Resources.CPU
	if cpu == nil || cpu.Quota == nil || cpu.Period == nil || *cpu.Quota <= 0 || *cpu.Period == 0 {
		return nil
	}
	processors := int(math.Ceil(float64(*cpu.Quota) / float64(*cpu.Period)))
	return []string{"--cpu-num", strconv.Itoa(min(processors, runtime.NumCPU()))}
}
