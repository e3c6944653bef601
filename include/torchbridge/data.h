// Data sets, the order of samples, and the loader.
#pragma once

#include "trainer_template/runtime/base/mapped_file.h"
#include "trainer_template/runtime/data/csv_dataset.h"
#include "trainer_template/runtime/data/idx_dataset.h"
#include "trainer_template/runtime/data/image_folder.h"
#include "trainer_template/runtime/data/loader.h"
#include "trainer_template/runtime/data/sampler.h"
#include "trainer_template/runtime/data/text_windows.h"
#include "trainer_template/runtime/data/token_windows.h"
#include "trainer_template/runtime/formats/image.h"
