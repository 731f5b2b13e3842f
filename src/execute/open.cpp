#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "execute/built.hpp"
#include "execute/module.hpp"

namespace fsdplan {
namespace {

/// Beside the program, as it is built, or where it is installed.
std::filesystem::path path_of(const BackendModule& module) {
    const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const std::filesystem::path built = folder / module.file;
    std::error_code ignored;
    return std::filesystem::exists(built, ignored) ? built : folder / installed_modules / module.file;
}

std::unique_ptr<Backend> load(const BackendModule& of) {
    const std::filesystem::path path = path_of(of);
    // Open MPI finds its components among global symbols. The module stays: a thread of it may still run.
    void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (module == nullptr) {
        throw Error(ErrorKind::machine, "dlopen", dlerror());
    }
    void* symbol = dlsym(module, "fsdplan_open_backend");
    if (symbol == nullptr) {
        throw Error(ErrorKind::machine, "dlsym", dlerror());
    }
    const char* reason = nullptr;
    std::unique_ptr<Backend> backend(reinterpret_cast<OpenBackend>(symbol)(&reason));
    if (backend == nullptr) {
        throw Error(ErrorKind::machine, std::string(of.name), reason);
    }
    return backend;
}

}  // namespace

std::unique_ptr<Backend> open_backend(std::string_view name) {
    const auto module = std::ranges::find(backend_modules, name, &BackendModule::name);
    if (module == backend_modules.end()) {
        std::string names;
        for (const BackendModule& known : backend_modules) {
            names += (names.empty() ? "" : ", ") + std::string(known.name);
        }
        throw Error(ErrorKind::input, "--backend",
                    "expected " + names + ", found \"" + std::string(name) + '"');
    }
    if (!module->is_built) {
        throw Error(ErrorKind::machine, "--backend " + std::string(name),
                    "this fsdplan was built without it: " + std::string(module->state));
    }
    return load(*module);
}

}  // namespace fsdplan
