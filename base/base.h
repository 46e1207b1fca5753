/* Everything of base/ in one include. */
#ifndef TESSERA_BASE_H
#define TESSERA_BASE_H

#include "base/arith.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/rng.h"
#include "base/strpool.h"

#endif
