/* Everything of fragmentation/ in one include. */
#ifndef TESSERA_FRAGMENTATION_H
#define TESSERA_FRAGMENTATION_H

#include "fragmentation/measure.h"
#include "fragmentation/workload.h"

#endif
