// SPDX-License-Identifier: MIT
#include "counters_elf.h"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <stdexcept>
#include <tuple>

namespace tierlab {
namespace {

// The file's bytes; every access is checked, so a damaged file is an error and not a crash.
class Bytes {
public:
    explicit Bytes(const std::string & path) : path_(path) {
        std::ifstream in(path, std::ios::binary | std::ios::ate);
        const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : 0;
        data_.resize(static_cast<std::size_t>(std::max<std::streamoff>(size, 0)));
        in.seekg(0);
        if (data_.empty() || !in.read(data_.data(), size)) {
            fail("cannot be read");
        }
    }

    template <typename T> T at(std::uint64_t offset) const {
        T value;
        std::memcpy(&value, range(offset, sizeof(T)), sizeof(T));
        return value;
    }

    template <typename T> std::vector<T> table(std::uint64_t offset, std::uint64_t bytes) const {
        std::vector<T> out(bytes / sizeof(T));
        if (!out.empty()) {
            std::memcpy(out.data(), range(offset, out.size() * sizeof(T)), out.size() * sizeof(T));
        }
        return out;
    }

    std::string text(std::uint64_t offset) const {
        const char * begin = range(offset, 1);
        return std::string(begin, strnlen(begin, data_.size() - offset));
    }

    [[noreturn]] void fail(const std::string & what) const { throw std::runtime_error(path_ + " " + what); }

private:
    const char * range(std::uint64_t offset, std::uint64_t bytes) const {
        if (offset > data_.size() || bytes > data_.size() - offset) {
            fail("is damaged: a table reaches beyond its end");
        }
        return data_.data() + offset;
    }

    std::string path_;
    std::vector<char> data_;
};

Elf64_Ehdr read_header(const Bytes & file) {
    const auto header = file.at<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != EM_AARCH64) {
        file.fail("is no little-endian AArch64 ELF file");
    }
    return header;
}

// A property note says that every object linked into the file keeps to BTI (ABI: aaelf64, "Program Property").
bool is_guarded(const Bytes & file, const Elf64_Ehdr & header) {
    constexpr std::uint32_t gnu_property = 0x6474e553, feature_1_and = 0xc0000000, bti = 1;
    constexpr std::uint64_t note_header = 16, property = 16; // "GNU\0" included; each property padded to 8
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        const auto segment = file.at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
        if (segment.p_type != gnu_property) {
            continue;
        }
        std::uint64_t offset = segment.p_offset + note_header;
        const std::uint64_t end = segment.p_offset + segment.p_filesz;
        while (offset + property <= end) {
            const std::uint64_t size = file.at<std::uint32_t>(offset + 4);
            if (file.at<std::uint32_t>(offset) == feature_1_and) {
                return (file.at<std::uint32_t>(offset + 8) & bti) != 0;
            }
            offset += 8 + ((size + 7) & ~std::uint64_t{7});
        }
    }
    return false;
}

const Elf64_Shdr * find_section(const std::vector<Elf64_Shdr> & sections, std::uint32_t type) {
    const auto found = std::find_if(sections.begin(), sections.end(),
                                    [&](const auto & section) { return section.sh_type == type; });
    return found == sections.end() ? nullptr : &*found;
}

bool is_code(const std::vector<Elf64_Shdr> & sections, const Elf64_Sym & symbol) {
    return symbol.st_shndx != SHN_UNDEF && symbol.st_shndx < sections.size() &&
           (sections[symbol.st_shndx].sh_flags & SHF_EXECINSTR) != 0;
}

std::vector<ElfFunction> read_functions(const Bytes & file, const std::vector<Elf64_Shdr> & sections) {
    const Elf64_Shdr * symbols = find_section(sections, SHT_SYMTAB);
    if (symbols == nullptr) { // stripped: the exported functions are still named
        symbols = find_section(sections, SHT_DYNSYM);
    }
    if (symbols == nullptr || symbols->sh_link >= sections.size()) {
        file.fail("has no symbol table: link it without -s and do not strip it");
    }
    const std::uint64_t names = sections[symbols->sh_link].sh_offset;
    std::vector<ElfFunction> functions;
    std::string source;
    for (const auto & symbol : file.table<Elf64_Sym>(symbols->sh_offset, symbols->sh_size)) {
        const unsigned type = ELF64_ST_TYPE(symbol.st_info);
        const bool local = ELF64_ST_BIND(symbol.st_info) == STB_LOCAL;
        if (type == STT_FILE) {
            source = file.text(names + symbol.st_name);
        }
        // Hand-written assembly may lack a type (STT_NOTYPE); '$x' and '$d' mark code and data.
        if ((type != STT_FUNC && type != STT_NOTYPE && type != STT_GNU_IFUNC) || !is_code(sections, symbol)) {
            continue;
        }
        const std::string name = file.text(names + symbol.st_name);
        if (!name.empty() && name[0] != '$') {
            functions.push_back({name, local ? source : "", symbol.st_value, symbol.st_size, type == STT_GNU_IFUNC});
        }
    }
    std::sort(functions.begin(), functions.end(), [](const auto & a, const auto & b) {
        return std::tie(a.address, a.name, a.source) < std::tie(b.address, b.name, b.source);
    });
    return functions;
}

void fill_missing_sizes(std::vector<ElfFunction> & functions, const std::vector<ElfCode> & code) {
    for (auto & function : functions) {
        if (function.size != 0) {
            continue;
        }
        const auto next = std::find_if(functions.begin(), functions.end(),
                                       [&](const auto & other) { return other.address > function.address; });
        for (const auto & section : code) {
            const std::uint64_t end = section.address + 4 * section.words.size();
            if (function.address >= section.address && function.address < end) {
                function.size = std::min(end, next == functions.end() ? end : next->address) - function.address;
            }
        }
    }
}

} // namespace

ElfWords ElfImage::words(std::uint64_t address, std::uint64_t size) const {
    for (const auto & section : code) {
        const std::uint64_t bytes = 4 * section.words.size();
        if (address >= section.address && address - section.address <= bytes &&
            size <= bytes - (address - section.address) && address % 4 == 0) {
            return {section.words.data() + (address - section.address) / 4, static_cast<std::size_t>(size / 4)};
        }
    }
    return {};
}

ElfImage read_elf(const std::string & path) {
    const Bytes file(path);
    const Elf64_Ehdr header = read_header(file);
    const auto sections = file.table<Elf64_Shdr>(header.e_shoff, sizeof(Elf64_Shdr) * header.e_shnum);
    ElfImage image;
    image.branch_targets_guarded = is_guarded(file, header);
    for (const auto & section : sections) {
        if ((section.sh_flags & SHF_EXECINSTR) != 0 && section.sh_type == SHT_PROGBITS) {
            image.code.push_back({section.sh_addr, file.table<std::uint32_t>(section.sh_offset, section.sh_size)});
        }
    }
    image.functions = read_functions(file, sections);
    fill_missing_sizes(image.functions, image.code);
    return image;
}

} // namespace tierlab
