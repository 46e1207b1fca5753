/* Instances on the fake driver: two GPUs, one of them in MIG mode, and whoever holds what. */
#ifndef TESSERA_TEST_MIG_FIXTURE_H
#define TESSERA_TEST_MIG_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/inventory.h"
#include "enforcer/mig.h"
#include "test/lib/hardware.h"

#define SECOND 1000

static struct hardware hw;
static struct en_mig *mig;
static struct en_prober *prober;
static struct en_probe *probe;
static char held[8][64]; /* "GPU-0/4" */

static inline bool is_held(void *ctx, const char *gpu, int start)
{
	char text[64];

	(void)ctx;
	for (int i = 0; i < 8; i++) {
		snprintf(text, sizeof(text), "%s/%d", gpu, start);
		if (strcmp(held[i], text) == 0 ||
		    (start < 0 && strncmp(held[i], gpu, strlen(gpu)) == 0))
			return true;
	}
	return false;
}

static inline void look(void)
{
	uint64_t made = mig != NULL ? en_mig_made(mig) : 0;
	struct err err = ERR_INIT;

	cr_assert_eq(en_prober_run(prober, probe, &err), 0, "%s", err.msg);
	cr_assert(probe->driver_ok, "%s", probe->why.msg);
	probe->mig_made = made;
	if (mig != NULL)
		en_mig_mark(mig, probe);
}

static inline void begin(enum en_mig_way way)
{
	const struct en_mig_options o = {.way = way,
					 .library = hw.library,
					 .path = hardware_path(&hw, "mig"),
					 .linger_ms = 60 * SECOND,
					 .held = is_held};
	struct err err = ERR_INIT;

	en_mig_free(mig);
	cr_assert_eq(en_mig_new(&o, &mig, &err), 0, "%s", err.msg);
	look();
}

static inline void start(void)
{
	const struct en_probe_options o = {.library = hw.library};
	struct err err = ERR_INIT;

	hardware_init(&hw);
	hardware_nvml(
		&hw,
		"driver 615.71.09\n" HARDWARE_GPU(0, "mig=on")
			HARDWARE_A100_MIG(0) "gpu uuid=GPU-1 name=NVIDIA_H100_80GB_HBM3 mem=81559 minor=1 mig=off\n" HARDWARE_A100_MIG(
				1));
	memset(held, 0, sizeof(held));
	probe = calloc(1, sizeof(*probe));
	cr_assert_eq(en_prober_new(&o, &prober, &err), 0);
}

static inline void stop(void)
{
	en_mig_free(mig);
	mig = NULL;
	en_prober_free(prober);
	free(probe);
	hardware_fini(&hw);
}

static inline struct en_holding holding(const char *gpu, const char *profile, int start_unit)
{
	struct en_holding h = {.id = "c", .container = "main"};

	h.grant = (struct st_grant){.kind = ST_KIND_MIG, .mode = ST_MODE_MIG, .count = 1};
	h.grant.start[0] = (uint8_t)start_unit;
	snprintf(h.grant.profile, sizeof(h.grant.profile), "%s", profile);
	snprintf(h.gpus[0], sizeof(h.gpus[0]), "%s", gpu);
	return h;
}

static inline int make(const char *gpu, const char *profile, int start_unit, int64_t now,
		       struct err *err)
{
	struct en_holding h = holding(gpu, profile, start_unit);

	return en_mig_make(mig, probe, &h, now, err);
}

static inline void drop(const char *gpu, int start_unit, int64_t now)
{
	struct en_holding h = holding(gpu, "1g.10gb", start_unit);

	en_mig_drop(mig, &h, now);
}

/* "3g.40gb@4 1g.10gb@0*" of what a look sees; * is not ours. */
static inline void expect_instances(size_t gpu, const char *want)
{
	char text[512] = "";

	look();
	for (size_t i = 0; i < probe->gpus[gpu].instance_count; i++) {
		const struct en_mig_instance *at = &probe->gpus[gpu].instances[i];
		size_t used = strlen(text);

		snprintf(text + used, sizeof(text) - used, "%s%s@%u%s", used > 0 ? " " : "",
			 at->profile, at->start, at->ours ? "" : "*");
		cr_expect_neq(at->uuid[0], '\0');
	}
	cr_expect_str_eq(text, want);
}

#endif
