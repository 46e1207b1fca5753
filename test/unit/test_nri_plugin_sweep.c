/* What ended while no agent ran keeps no guarantee, as long as its cgroup is there. */
#include "test/lib/hardware.h"
#include "test/unit/plugin_fixture.h"

#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define C "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct {
	const char *cgroup, *events;
	int64_t soft_after;
} rows[] = {
	{"cg/kubepods/pod1/" A, "populated 0\nfrozen 0\n", 0},
	{"cg/kubepods/pod1/" B, "populated 1\nfrozen 0\n", 1000},
	{"cg/kubepods.slice/cri-containerd-" C ".scope", "populated 0\n", 0},
	{"cg/kubepods.slice/cri-containerd-" C ".scope/container", "populated 0\n", 0},
	{"cg/kubepods/pod0a6de9c1-3f2b-4d5e-8a7b-1c2d3e4f5a6b", "populated 0\n",
	 1000}, /* a pod's */
	{"cg/system.slice/dbus.service", "populated 0\n", 1000},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

Test(nri_plugin, guarantees_of_what_ended_unseen)
{
	char mount[300];
	struct hardware h;
	struct world w;

	hardware_init(&h);
	world_init(&w, 2, 81920);
	en_plugin_free(w.plugin);
	snprintf(mount, sizeof(mount), "%s", hardware_path(&h, "cg"));
	w.options.cgroup_mount = mount;
	cr_assert_eq(en_plugin_new(&w.options, &w.plugin, NULL), 0);
	for (size_t i = 0; i < ROWS; i++) {
		char events[400];

		snprintf(events, sizeof(events), "%s/cgroup.events", rows[i].cgroup);
		hardware_file(&h, events, "%s", rows[i].events);
		cr_assert_eq(limits_set(&w, hardware_path(&h, rows[i].cgroup), GPU(1), 1000, 2000,
					NULL),
			     0);
	}
	cr_expect_eq(en_plugin_sweep(w.plugin), 0, "the GPUs are not known yet");
	cr_assert_eq(en_plugin_set_node(w.plugin, &w.node.node, NULL), 0);
	cr_expect_eq(en_plugin_sweep(w.plugin), 3);
	for (size_t i = 0; i < ROWS; i++) {
		int64_t soft = -1, hard = -1;

		limits_get(&w, hardware_path(&h, rows[i].cgroup), GPU(1), &soft, &hard, NULL, NULL);
		cr_expect_eq(soft, rows[i].soft_after, "%s", rows[i].cgroup);
		cr_expect_eq(hard, rows[i].soft_after == 0 ? EN_LIMIT_NONE : 2000, "%s",
			     rows[i].cgroup);
	}
	cr_expect_eq(en_plugin_sweep(w.plugin), 0, "nothing is left to do");
	world_fini(&w);
	hardware_fini(&h);
}
