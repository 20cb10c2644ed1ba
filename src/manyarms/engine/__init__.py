"""The mathematics: pure functions and frozen values, for beliefs and for the search.

Notation of the core (short uppercase matrices are locals, spelled names are attributes):

    symbol  code              shape     meaning
    A       n_arms                      number of arms
    λ       regularization              ridge, a variance
    ξ       noise                       standard deviation of the noise
    ω       weights           (n,)      ξ²/ξ_s², what an observation counts for
    W       inducing rows     (m, d)    rows that span the sketch; they only grow
    L       L                 (m, m)    Cholesky factor of K_WW, in the order of arrival
    z(x)    rows of Z         (·, m)    embedding L⁻¹k_W(x)
    r(x)    r                 (·,)      k(x, x) − ‖z(x)‖² ≥ 0, what the projection leaves out
    ψ                         (m,)      the feature of an observation: z(x) when it was seen
    V       factor            (m, m)    λI + Σ ωψψᵀ = CCᵀ, as its factor C and rows that wait
    w       w                 (m,)      V⁻¹ Σ ωψy
    μ̃       mean              (·,)      z(x)ᵀw
    q                         (·,)      z(x)ᵀV⁻¹z(x)
    σ̃²      variance          (·,)      r/λ + q, in leverage units: the variance of f is λσ̃²
    e       left_out                    Σ ωr/λ over the observations
    η       eta                         the largest eigenvalue of what is left out; η ≤ e
    ℓ       log_det                     ln det(V/λ)
    β̃       beta                        radius; the score is μ̃ + β̃σ̃
    S       dictionary        (m,)      inducing rows that are drawn (Algorithm 1)
    α       alpha                       (1 + ε)/(1 − ε)
"""
