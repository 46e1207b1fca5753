/* A libnvidia-ml.so.1 for tests: built as build/<variant>/libnvidia-ml.so.1 from fake_nvml.c, over the
 * script that TESSERA_FAKE_NVML names. The script is read again at every call, so a test changes the
 * hardware by writing the file. One statement a line, "key=value" words in any order, '_' in names
 * stands for a blank; what is not said has the value in brackets:
 *
 *   driver 615.71.09
 *   backend dmem                                what memory limits do: dmem, misc, none [dmem]
 *   forgets                                     memory limits are taken, and nothing is done
 *   gpu uuid=GPU-a name=NVIDIA_A100-SXM4-80GB mem=81920 bus=00000000:02:00.0 minor=0
 *       mig=none|off|on pending=on|off temp=40 slowdown=90 shutdown=95 ecc=0 remap_failed=0
 *       remap_pending=0 throttle=0 mode=0 persistence=1      (all on one line; a GPU a line)
 *   process gpu=0 pid=4711 kind=compute|graphics|mps mem=512
 *   sample gpu=0 pid=4711 sm=50 time=1000
 *   profile gpu=0 which=2 id=9 name=MIG_3g.40gb slices=3 max=2 mem=40320 size=4 starts=0,4
 *   profiles_need_mig                           with MIG off, the driver tells starts only
 *   instance gpu=0 profile=9 id=1 start=4 size=4 uuid=MIG-a
 *   busy gpu=0 start=4                         a process is on the instance there
 *   xid gpu=0 code=79                           each is reported once a process; gpu=-1: no GPU named
 *   fail call=nvmlDeviceGetUUID code=15 gpu=0   gpu left out: for all
 *   slow call=nvmlDeviceGetName ms=50
 *
 * Instances that are made and removed, and MIG modes that are set, are written into the script (removed
 * ones become "gone" lines; ids are given again). reset=yes on a gpu: its mode wants a reset.
 *
 * Every memory limit that is set is added to <script>.log as "set UUID CGROUP SOFT HARD" in bytes, -
 * for no limit; they are read back from there, also by another process. A cgroup must exist as a
 * folder. nvidia-smi of the same folder (fake_smi.c) speaks to this library. */
#ifndef TESSERA_TEST_FAKE_NVML_H
#define TESSERA_TEST_FAKE_NVML_H

#define FAKE_NVML_ENV "TESSERA_FAKE_NVML"

#endif
